"""The statements of a read, which select only the wanted columns and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from django_pgqueue.spark.schema import JSON_COLUMNS, SQL_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructField, StructType


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
    """Times need no clamp: the tables refuse those that Python and Spark do not know."""
    name = sql.Identifier(field.name)
    return sql.SQL("{}::text").format(name) if field.name in JSON_COLUMNS else name
