"""``spark.read.format("pgqueue")``: reads one moment of the history, or of the messages, in several tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql
from pyspark.sql.datasource import DataSourceReader, InputPartition

from django_pgqueue.spark import database, mask, schema as schemas, slices
from django_pgqueue.spark.errors import InvalidOption
from django_pgqueue.spark.slices import Slice
from django_pgqueue.spark.snapshot import REPLICA_BEHIND, Snapshot, catch_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import psycopg
    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType

    from django_pgqueue.spark.options import PipelineOptions
    from django_pgqueue.spark.slices import Part


class PgQueueReader(DataSourceReader):
    """Spark pickles this reader before it calls ``partitions``, so the partitions carry whatever executors need."""

    def __init__(self, options: PipelineOptions, schema: StructType, *, reached: int | None = None) -> None:
        """``reached``: a replica is waited for until it has all transactions before this one."""
        self.options = options
        self.reached = options.to_transaction if reached is None else reached
        self.schema = schema
        self.mask_key_id = mask.key_id(mask.key(options)) if options.mask else None

    def partitions(self) -> list[Slice]:
        if self.options.table != "attempts":
            # They are small, and one statement sees one moment.
            return self.planned([slices.WHOLE], reached=self.reached)
        with database.connect(database.reading(self.options)) as connection:
            return self._of_attempts(connection)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from django_pgqueue.spark import fetch  # noqa: PLC0415 -- planning does not need it

        key = self._mask_key()
        assert isinstance(partition, Slice)  # noqa: S101 -- Spark gives back what partitions() made
        conninfo, arrow = database.reading(self.options), schemas.arrow(self.schema)
        for statement in partition.statements:
            batches = fetch.batches(conninfo, statement, arrow, reached=partition.reached)
            yield from batches if key is None else (fetch.masked(one, self.options.mask, key) for one in batches)

    def planned(self, parts: Iterable[Part], *common: sql.Composable, reached: int | None = None) -> list[Slice]:
        """Returns a slice for each part; its rows fulfil the conditions of the options too, and the common ones.
        ``reached``: which transactions had ended where the read was planned.
        """
        asked = [*self._asked(), *common]
        reached = None if self.options.replica_variable is None else reached
        return [
            Slice(
                statements=tuple(select(self.options.table, self.schema, [*asked, one]) for one in part),
                reached=reached,
            )
            for part in parts
        ]

    def _mask_key(self) -> bytes | None:
        """Returns the key of the masks, the same as where the read was planned; None: there are no masks."""
        if not self.options.mask:
            return None
        key = mask.key(self.options)
        if mask.key_id(key) != self.mask_key_id:
            message = (
                f"{self.options.mask_key_variable} has another key in this process than in the one that planned the "
                "read. Set the same key on the driver and on each executor, before Spark starts."
            )
            raise InvalidOption(message)
        return key

    def _of_attempts(self, connection: psycopg.Connection) -> list[Slice]:
        if self.reached is not None and self.options.replica_variable is not None:
            asked = REPLICA_BEHIND.format(self.reached).encode()
            catch_up(lambda: bool(connection.execute(asked).fetchone()), self.reached)
        snapshot = Snapshot.taken(connection)
        first, end = self.options.from_transaction, self.options.to_transaction
        at_most = self.options.partitions_at_most
        found = None
        if first:
            found = slices.of_transactions(connection, first, min(end or snapshot.end, snapshot.end), at_most=at_most)
        if found is None:
            found = slices.of_days(
                connection,
                at_most=at_most,
                exactly=at_most if self.options.num_partitions else None,
                earliest=self.options.finished_from,
                latest=self.options.finished_to,
            )
        cut = slices.between("transaction_id", first, end)
        return self.planned(found, cut, snapshot.condition(), reached=snapshot.horizon)

    def _asked(self) -> list[sql.Composable]:
        """Returns the conditions of the options."""
        asked = [slices.between("finished_at", self.options.finished_from, self.options.finished_to)]
        if self.options.where is not None:
            asked.append(sql.SQL("({}\n)").format(sql.SQL(self.options.where.replace("{", "{{").replace("}", "}}"))))
        return asked


def select(table: str, schema: StructType, conditions: Iterable[sql.Composable]) -> str:
    """Returns the statement with all values in its text: with parameters, the driver cannot fetch in bulk."""
    columns = [_selected(field) for field in schema.fields] or [sql.SQL("")]
    return (
        sql.SQL("select {} from {} where {}")
        .format(
            sql.SQL(", ").join(columns),
            sql.Identifier(schemas.SQL_NAMES[table]),
            sql.SQL(" and ").join([slices.EVERYTHING, *conditions]),
        )
        .as_string(None)
    )


def _selected(field: StructField) -> sql.Composable:
    """Times need no clamp: the tables refuse those that Python and Spark do not know."""
    name = sql.Identifier(field.name)
    return sql.SQL("{}::text").format(name) if field.name in schemas.JSON_COLUMNS else name
