"""Streams rows of PostgreSQL as Arrow record batches; memory never holds all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import adbc_driver_manager
import adbc_driver_postgresql.dbapi
import pyarrow as pa

from django_pgqueue.spark.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = "adbc.postgresql.batch_size_hint_bytes"
BATCH_BYTES = 4 * 2**20
"""Size as PostgreSQL sends it.  Spark is slower with much larger batches, which leave the processor's cache."""


def batches(conninfo: str, statement: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the statement.  The task that reads opens and closes the connection here."""
    try:
        with (
            adbc_driver_postgresql.dbapi.connect(conninfo) as connection,
            connection.cursor() as cursor,
        ):
            cursor.adbc_statement.set_options(**{BATCH: str(BATCH_BYTES)})
            cursor.execute(statement)
            for batch in cursor.fetch_record_batch():
                yield shaped(batch, schema)
    except (adbc_driver_manager.Error, OSError) as error:  # OSError: the stream broke off
        message = f"PostgreSQL could not be read: {str(error).strip()}"
        raise DatabaseUnavailable(message) from None


def shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Casts the columns to exactly the types that Spark expects."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
