"""A lake: a folder with Delta tables for the attempts, for what durable tasks did, and for the report.

A run first writes its data files, under names that no other run uses.  Then one commit adds them to the table and moves
the position.  Two runs that began at the same position cannot both commit, and a killed run leaves only files that no
commit names.
"""

from __future__ import annotations

import json
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from django_pgqueue.spark.errors import plain
from django_pgqueue.spark.lake.errors import LakeConflict, LakeError, NewerLake, NotALake, OldLake
from django_pgqueue.spark.lake.lineage import last_whole, mark_of_rows
from django_pgqueue.spark.lake.place import Place
from django_pgqueue.spark.lake.schema import HISTORY, SCHEMAS
from django_pgqueue.spark.schema import arrow
from django_pgqueue.spark.session import check_here

if TYPE_CHECKING:
    import datetime as dt
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "3"
OLD_MANIFESTS = "_pgqueue/manifests"
MISSED, REPORTED = "pgqueue.missed", "pgqueue.reported_until"
ATTEMPTS_AT_A_COMMIT = 10
WITHOUT_VALUES = {"delta.dataSkippingNumIndexedCols": "0"}
"""Keeps the least and greatest values of merged files out of the log, which erased rows would survive in."""
UNREADABLE = frozenset({"deletionVectors", "columnMapping"})
"""Features of Delta that are not in the files that Spark reads here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file with rows of one day."""

    path: str
    """Relative to the table's folder."""
    date: dt.date
    rows: int
    bytes: int

    def add(self) -> AddAction:
        now = int(time.time() * 1000)
        # Ranges of columns stand in the file's own footer.
        statistics = json.dumps({"numRecords": self.rows})
        return AddAction(self.path, self.bytes, {"date": self.date.isoformat()}, now, True, statistics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The attempts of a lake at one commit."""

    table: DeltaTable
    settings: Mapping[str, str]

    @property
    def number(self) -> int:
        return self.table.version()

    @property
    def lake_id(self) -> str:
        return self.settings["pgqueue.lake_id"]

    @property
    def source(self) -> str:
        """The queue that the attempts come from: the cluster's identifier, the database and the schema."""
        return self.settings["pgqueue.source"]

    @property
    def position(self) -> int:
        """How far the history of this database has been read: an offset of the data source."""
        return self.table.transaction_version(position_id(self.source)) or 0

    @property
    def missed(self) -> int:
        """Attempts that retention dropped before they came here, as far as a run has said so."""
        return self.table.transaction_version(MISSED) or 0

    def files(self, *, since: dt.date | None = None, until: dt.date | None = None) -> list[DataFile]:
        return files_of(self.table, since, until)


class Lake:
    """
    >>> Lake.open(spark, "/data/jobs").version().position  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        check_here(spark)
        self.spark = spark
        self.place = Place.of(path, spark)

    @classmethod
    def open(cls, spark: SparkSession, path: str | os.PathLike[str]) -> Lake:
        lake = cls(spark, path)
        if not lake.exists:
            lake.refuse_old()
            message = f"There is no lake at {lake.root}: no Delta table in {lake.root}/attempts. Export one first."
            raise NotALake(message)
        lake.version()
        return lake

    @classmethod
    def open_or_new(cls, spark: SparkSession, path: str | os.PathLike[str]) -> Lake:
        """Opens a lake, or a folder that is empty or does not exist and can become one."""
        lake = cls(spark, path)
        if lake.exists:
            lake.version()
            return lake
        lake.refuse_old()
        strange = [name for name in lake.place.names() if name != "attempts"]
        if strange:
            message = (
                f"{lake.root} is not a lake of django_pgqueue: it contains {strange[0]!r}, and no Delta table of "
                "attempts. Name a folder that is empty or does not exist."
            )
            raise NotALake(message)
        return lake

    @property
    def root(self) -> str:
        return self.place.url

    @property
    def exists(self) -> bool:
        return self.has("attempts")

    def has(self, table: str) -> bool:
        place = self.place / table
        with readable(place):
            return bool(DeltaTable.is_deltatable(place.url, dict(place.options)))

    def refuse_old(self) -> None:
        if (self.place / OLD_MANIFESTS).names():
            message = (
                f"{self.root} has the format of an earlier release. Convert it once: "
                f"qpipeline convert --lake {self.root}"
            )
            raise OldLake(message)

    def make(self, schema: StructType, settings: Mapping[str, str]) -> None:
        """Makes the table of attempts, unless another run just did."""
        known = {"pgqueue.format": FORMAT, "pgqueue.lake_id": uuid.uuid4().hex, **settings}
        place = self.place / "attempts"
        create(place, schema, known)
        place.sync_log(0)

    def version(self) -> Version:
        table = self.opened("attempts")
        settings = table.metadata().configuration
        if "pgqueue.lake_id" not in settings:
            message = f"{self.root} has a Delta table that django_pgqueue did not make. Name another folder."
            raise NotALake(message)
        if int(settings["pgqueue.format"]) > int(FORMAT):
            message = (
                f"{self.root} has format {settings['pgqueue.format']}; this version of django_pgqueue reads and writes "
                f"up to {FORMAT}. Update django_pgqueue, or use another folder."
            )
            raise NewerLake(message)
        return Version(table=table, settings=settings)

    def table(self, name: str, number: int | None = None) -> DeltaTable | None:
        """Returns a table as it is now; None: there is none yet."""
        return self.opened(name, number) if self.has(name) else None

    def opened(self, name: str, number: int | None = None) -> DeltaTable:
        place = self.place / name
        with readable(place):
            table = DeltaTable(place.url, version=number, storage_options=dict(place.options))
        if table.metadata().partition_columns != ["date"]:
            message = (
                f"{place.url} is a Delta table that django_pgqueue did not make. Move it away, or name another folder."
            )
            raise NotALake(message)
        if unknown := UNREADABLE.intersection(table.protocol().reader_features or ()):
            message = (
                f"Another program has given {place.url} the feature {', '.join(sorted(unknown))} of Delta, with which "
                "the files alone do not say which rows it has. Drop the feature with that program: alter table … drop "
                "feature."
            )
            raise LakeError(message)
        return table

    def position(self, table: str) -> int:
        """Returns how far a table has followed its database; 0: it has not begun."""
        found = self.table(table)
        return 0 if found is None else found.transaction_version(position_id(self.version().source)) or 0

    def widen(self, name: str, schema: StructType) -> None:
        """Adds the columns to a table that a later release has brought.  Older files have no values.  Makes the table,
        if there is none.
        """
        place = self.place / name
        if not self.has(name):
            create(place, schema)
            place.sync_log(0)
        table = self.opened(name)
        known = {field.name for field in table.schema().fields}
        new = [field for field in Schema.from_arrow(with_date(schema)).fields if field.name not in known]
        if new:
            before = table.version()
            try:
                table.alter.add_columns(new)
            except CommitFailedError as error:
                raise LakeConflict(self._busy()) from error
            place.sync_log(before + 1)

    def _busy(self) -> str:
        return f"Other processes have written {self.root} in the meantime. Nothing was written: run the command again."

    def advance(
        self,
        start: int,
        end: int,
        files: Iterable[DataFile],
        *,
        run: Mapping[str, object],
        missed: int = 0,
        name: str = "attempts",
    ) -> bool:
        """Adds the files of the transactions from ``start`` until before ``end``, and moves the table's position.

        Returns False if another run has been there: then nothing of this one is visible.
        """
        added = [file.add() for file in files]
        for _ in range(ATTEMPTS_AT_A_COMMIT):
            current = self.version()
            table, mark = current.table if name == "attempts" else self.opened(name), position_id(current.source)
            # Two commits from one version exclude each other.  From a later version only this comparison knows.
            if (table.transaction_version(mark) or 0) != start:
                return False
            self.refuse_restored(current, name)
            marks = [Transaction(mark, end)]
            marks += [Transaction(MISSED, missed)] if missed > current.missed else []
            if self.committed(name, table, added, marks, run):
                return True
        raise LakeConflict(self._busy())

    def refuse_restored(self, version: Version, name: str = "attempts") -> None:
        """Raises an error if another program has given a table the rows of an earlier version: the position is where it
        was, and what is between the two would be missing for ever.
        """
        place, mark = self.place / name, position_id(version.source)
        table = version.table if name == "attempts" else self.table(name)
        with readable(place):
            if table is None or mark_of_rows(place, table, mark) == table.transaction_version(mark):
                return
            whole = last_whole(place, table, mark)
        ways = [] if whole is None else [f"restore version {whole}"]
        if name == "attempts":
            ways.append("let the lake go on where its attempts end: qpipeline export --adopt")
        else:
            ways.append("move it away: the next export fills it with what PostgreSQL still has")
        message = (
            f"Another program has restored {place.url} to an earlier version, without its position: it would lack the "
            f"rows in between. Nothing was made visible. To go on, {', or '.join(ways)}."
        )
        raise LakeError(message)

    def adopt(self, version: Version, source: str, position: int) -> None:
        """Goes on with another database, at this position."""
        for name in HISTORY[1:]:
            if (table := self.table(name)) is not None:
                marks = [Transaction(position_id(source), position)]
                if not self.committed(name, table, [], marks, {"written_by": "adopt"}):
                    raise LakeConflict(self._busy())
        try:
            version.table.alter.set_table_properties(
                {"pgqueue.source": source},
                raise_if_not_exists=False,
                commit_properties=CommitProperties(app_transactions=[Transaction(position_id(source), position)]),
            )
        except CommitFailedError as error:
            raise LakeConflict(self._busy()) from error
        (self.place / "attempts").sync_log(version.number + 1)

    def replace(  # noqa: PLR0917
        self,
        name: str,
        since: dt.date,
        until: dt.date,
        rows: pa.Table,
        marks: Mapping[str, int],
        today: dt.date,
    ) -> None:
        """Replaces the days of a table of the report, and those after today."""
        create(self.place / name, SCHEMAS[name])
        dated = rows.append_column("date", pc.floor_temporal(rows["hour"], unit="day").cast(pa.date32()))
        about = CommitProperties(
            app_transactions=[Transaction(key, value) for key, value in marks.items()],
            custom_metadata={"written_by": "report"},
        )
        days = f"date >= '{since}' and date <= '{until}' or date > '{today}'"
        for _ in range(ATTEMPTS_AT_A_COMMIT):
            table = self.opened(name)
            before = table.version()
            try:
                write_deltalake(table, dated, mode="overwrite", predicate=days, commit_properties=about)
            except CommitFailedError:
                continue
            self.sync(name, before, since, until)
            return
        message = (
            f"Other processes have written {self.root} in the meantime. PostgreSQL has the report, and the lake lacks "
            "it: run the command again."
        )
        raise LakeConflict(message)

    def sync(self, name: str, before: int, since: dt.date | None = None, until: dt.date | None = None) -> None:
        """Makes durable what deltalake has written by itself since a version."""
        place = self.place / name
        place.sync(*(file.path for file in files_of(self.opened(name), since, until)))
        place.sync_log(before + 1)

    def committed(
        self,
        name: str,
        table: DeltaTable,
        actions: Sequence[AddAction],
        marks: list[Transaction],
        run: Mapping[str, object],
    ) -> bool:
        place, before = self.place / name, table.version()
        place.sync(*(action.path for action in actions))
        try:
            table.create_write_transaction(
                list(actions),
                "append",
                table.schema(),
                ["date"],
                commit_properties=CommitProperties(
                    app_transactions=marks, custom_metadata={name: str(value) for name, value in run.items()}
                ),
            )
        except CommitFailedError:
            return False
        place.sync_log(before + 1)
        return True


@contextmanager
def readable(place: Place) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError, OverflowError) as error:  # the last one is that of a version below 0
        message = f"{place.url} cannot be read: {plain(error)}"
        raise LakeError(message) from error


def create(place: Place, schema: StructType, settings: Mapping[str, str] | None = None) -> DeltaTable:
    """Makes a table, unless there is one."""
    options = dict(place.options)
    try:
        return DeltaTable.create(
            place.url,
            with_date(schema),
            mode="ignore",
            partition_by=["date"],
            configuration={**WITHOUT_VALUES, **(settings or {})},
            storage_options=options,
            raise_if_key_not_exists=False,
            commit_properties=CommitProperties(max_commit_retries=0),  # a second try would replace the other's settings
        )
    except DeltaError:
        if not DeltaTable.is_deltatable(place.url, options):
            raise
        return DeltaTable(place.url, storage_options=options)  # another run has just made it


def position_id(source: str) -> str:
    """Returns the application of Delta's transactions whose version is the position in this database."""
    return f"pgqueue:{source}"


def with_date(schema: StructType) -> Any:
    return arrow(schema).append(pa.field("date", pa.date32()))


def files_of(table: DeltaTable, since: dt.date | None = None, until: dt.date | None = None) -> list[DataFile]:
    """Returns the files of the days from ``since`` to ``until``, both inclusive."""
    if since is not None and until is not None and since > until:
        message = f"The days would end ({until}) before they begin ({since})."
        raise LakeError(message)
    actions = table.get_add_actions(flatten=True)
    if not actions.num_rows:
        return []
    columns = pa.table(actions).select(["path", "size_bytes", "num_records", "partition.date"]).columns
    found = [
        DataFile(path=unquote(path), bytes=size, rows=rows, date=date)
        for path, size, rows, date in zip(*(column.to_pylist() for column in columns), strict=True)
        if (since is None or date >= since) and (until is None or date <= until)
    ]
    return sorted(found, key=lambda file: file.path)  # which begins with the day
