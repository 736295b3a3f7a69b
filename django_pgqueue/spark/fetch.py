"""Streams rows of PostgreSQL as Arrow record batches; memory never holds all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import adbc_driver_manager
import adbc_driver_postgresql
import pyarrow as pa

from django_pgqueue.spark import mask
from django_pgqueue.spark.database import without_quotes
from django_pgqueue.spark.errors import DatabaseUnavailable
from django_pgqueue.spark.schema import JSON_COLUMNS
from django_pgqueue.spark.snapshot import BEHIND, catch_up

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = "adbc.postgresql.batch_size_hint_bytes"
BATCH_BYTES = 4 * 2**20
"""Size as PostgreSQL sends it.  Spark is slower with much larger batches, which leave the processor's cache."""


def batches(
    conninfo: str, statement: str, schema: pa.Schema, *, reached: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the statement in the types that Spark expects.  The task that reads opens and closes the
    connection here.  ``reached``: a replica is waited for until it has all transactions before this one.

    The driver's ``dbapi`` would be shorter, but each task would import pyarrow.dataset and, where it is, Polars for it.
    """
    try:
        # The driver knows a type by the name of its function, and by no name in quotes: then all columns are bytes.
        # Only then are they turned off, because a pooler may refuse options.
        for address in (conninfo, without_quotes(conninfo)):
            with (
                adbc_driver_postgresql.connect(address) as database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as asked,
            ):
                if reached is not None:
                    catch_up(partial(_is_behind, connection, reached), reached)
                asked.set_options(**{BATCH: str(BATCH_BYTES)})
                asked.set_sql_query(statement)
                stream, _ = asked.execute_query()
                with pa.RecordBatchReader.from_stream(stream) as found:
                    if address == conninfo and not _knows_types(found.schema):
                        continue
                    for batch in found:
                        yield batch.cast(schema)
                    return
    # The last two: the stream broke off, or a value did not fit.
    except (adbc_driver_manager.Error, OSError, pa.ArrowInvalid) as error:
        message = f"PostgreSQL could not be read: {str(error).strip()}"
        raise DatabaseUnavailable(message) from None


def _is_behind(connection: adbc_driver_manager.AdbcConnection, number: int) -> bool:
    with adbc_driver_manager.AdbcStatement(connection) as asked:
        asked.set_sql_query(BEHIND.format(number))
        stream, _ = asked.execute_query()
        with pa.RecordBatchReader.from_stream(stream) as found:
            return bool(found.read_all().num_rows)


def _knows_types(schema: pa.Schema) -> bool:
    """Whether the driver has recognized the types of all columns, none of which is binary in SQL."""
    types = [type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_ for type_ in schema.types]
    return not any(pa.types.is_binary(type_) for type_ in types)


def masked(batch: pa.RecordBatch, names: tuple[str, ...], key: bytes) -> pa.RecordBatch:
    """Returns the batch with masks in the columns that ``names`` has.  A null stays null."""
    for number, name in enumerate(batch.schema.names):
        if name in names:
            batch = batch.set_column(number, batch.schema.field(number), _masks(name, batch.column(number), key))
    return batch


def _masks(name: str, column: pa.Array, key: bytes) -> pa.Array:
    quote = '"' if name in JSON_COLUMNS else ""  # what was JSON stays JSON
    values = column.dictionary_encode()
    digests = [quote + mask.digest(value, key) + quote for value in values.dictionary.to_pylist()]
    return pa.array(digests, column.type).take(values.indices)
