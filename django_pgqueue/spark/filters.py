"""Translates Spark's filters to SQL where both mean the same; Spark evaluates the others."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from psycopg import sql
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, ShortType, StringType, TimestampType

from django_pgqueue.spark.schema import JSON_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PYTHON_TYPES: dict[type[DataType], type] = {
    LongType: int,
    IntegerType: int,
    ShortType: int,
    BooleanType: bool,
    StringType: str,
    TimestampType: dt.datetime,
}
OPERATORS = {
    EqualTo: "{column} = {value}",
    EqualNullSafe: "{column} is not distinct from {value}",
    GreaterThan: "{column} > {value}",
    GreaterThanOrEqual: "{column} >= {value}",
    LessThan: "{column} < {value}",
    LessThanOrEqual: "{column} <= {value}",
    StringStartsWith: "starts_with({column}, {value})",
    StringEndsWith: "right({column}, length({value})) = {value}",
    StringContains: "strpos({column}, {value}) > 0",
}


def condition(filter_: Filter, schema: StructType) -> sql.Composable | None:
    """Returns the same condition in SQL; None when SQL may decide differently."""
    if isinstance(filter_, Not):
        child = condition(filter_.child, schema)
        return None if child is None else sql.SQL("not ({})").format(child)
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    kind = _kind(path, schema)
    return None if kind is None else _comparison(filter_, _column(path[0], kind), kind)


def _comparison(filter_: Filter, column: sql.Composable, kind: DataType) -> sql.Composable | None:
    match filter_:
        case IsNull():
            return sql.SQL("{} is null").format(column)
        case IsNotNull():
            return sql.SQL("{} is not null").format(column)
        case In(value=values):
            literals = [literal for value in values if (literal := _literal(value, kind))]
            complete = literals and len(literals) == len(values)
            return sql.SQL("{} in ({})").format(column, sql.SQL(", ").join(literals)) if complete else None
    operator, value = OPERATORS.get(type(filter_)), _literal(getattr(filter_, "value", None), kind)
    return None if operator is None or value is None else sql.SQL(operator).format(column=column, value=value)


def _kind(path: tuple[str, ...], schema: StructType) -> DataType | None:
    if len(path) != 1 or path[0] not in schema.fieldNames():
        return None
    kind = schema[path[0]].dataType
    return kind if type(kind) in PYTHON_TYPES else None


def _column(name: str, kind: DataType) -> sql.Composable:
    column = sql.SQL("{}::text") if name in JSON_COLUMNS else sql.SQL("{}")
    # Spark compares text by its bytes, whatever the collation of the database is.
    collation = sql.SQL(' collate "C"') if isinstance(kind, StringType) else sql.SQL("")
    return column.format(sql.Identifier(name)) + collation


def _literal(value: Any, kind: DataType) -> sql.Composable | None:
    if type(value) is not PYTHON_TYPES[type(kind)]:
        return None
    if isinstance(value, str) and ("\x00" in value or not _encodable(value)):
        return None
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return None
    return sql.Literal(value)


def _encodable(value: str) -> bool:
    try:
        return bool(value.encode()) or not value
    except UnicodeEncodeError:
        return False
