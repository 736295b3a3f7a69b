"""Spark's columns are those of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from django_pgqueue.spark import schema

if TYPE_CHECKING:
    from tests.support.sessions import Session

SPARK_NAMES = {
    "bigint": "bigint",
    "integer": "int",
    "smallint": "smallint",
    "boolean": "boolean",
    "text": "string",
    "jsonb": "string",
    "timestamp with time zone": "timestamp",
    "bigint[]": "array<bigint>",
}


@pytest.mark.parametrize("table", schema.TABLES)
def test_names_types_and_order_are_those_of_the_table(session: Session, table: str) -> None:
    columns = session.rows(
        "select attname, format_type(atttypid, null), not attnotnull from pg_attribute "
        "where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum",
        [schema.SQL_NAMES[table]],
    )
    there = [(name, SPARK_NAMES[kind], nullable) for name, kind, nullable in columns]
    ours = [(field.name, field.dataType.simpleString(), field.nullable) for field in schema.TABLES[table].fields]
    assert ours == there


@pytest.mark.parametrize("table", schema.TABLES)
def test_all_json_columns_are_known(session: Session, table: str) -> None:
    found = session.column(
        "select attname::text from pg_attribute where attrelid = %s::regclass and atttypid = 'jsonb'::regtype",
        [schema.SQL_NAMES[table]],
    )
    assert set(found) == schema.JSON_COLUMNS & set(schema.TABLES[table].fieldNames())


def test_arrow_has_times_in_utc() -> None:
    made = schema.arrow(StructType().add("finished_at", "timestamp", nullable=False))
    assert made.equals(pa.schema([pa.field("finished_at", pa.timestamp("us", "UTC"), nullable=False)]))
