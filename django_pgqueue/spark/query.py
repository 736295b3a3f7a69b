"""The statements of a read, which select only the wanted columns and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql
from pyspark.sql.types import StructField, TimestampType

from django_pgqueue.spark.schema import JSON_COLUMNS, SQL_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

# Clamps a time to the range of Python and Spark; "infinity" becomes the latest time.
TIME = "greatest(least({}, '9999-12-31 23:59:59.999999+00'), '0001-01-01 00:00:00+00')"


def select(table: str, schema: StructType, conditions: Iterable[sql.Composable]) -> str:
    """Returns the statement with all values in its text: with parameters, the driver cannot fetch in bulk."""
    columns = [_selected(field) for field in schema.fields] or [sql.SQL("")]
    where = sql.SQL(" and ").join([sql.SQL("true"), *conditions])
    return (
        sql.SQL("select {} from {} where {}")
        .format(sql.SQL(", ").join(columns), sql.Identifier(SQL_NAMES[table]), where)
        .as_string(None)
    )


def _selected(field: StructField) -> sql.Composable:
    name = sql.Identifier(field.name)
    if isinstance(field.dataType, TimestampType):
        time = sql.SQL(TIME).format(name)
        # greatest() ignores a null, and would turn it into a time.
        return sql.SQL("case when {} is not null then {} end").format(name, time) if field.nullable else time
    return sql.SQL("{}::text").format(name) if field.name in JSON_COLUMNS else name
