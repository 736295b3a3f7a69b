"""Checks that a DataFrame can become messages: it has known columns, with the types of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from django_pgqueue.spark.errors import InvalidColumns

if TYPE_CHECKING:
    from collections.abc import Mapping

WHOLE_NUMBERS = (ByteType, ShortType, IntegerType, LongType)
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "task": (StringType,),
    "args": (StringType,),
    "kwargs": (StringType,),
    "content": (StringType,),
    "queue": (StringType,),
    "priority": WHOLE_NUMBERS,
    "dequeue_at": (LongType, TimestampType),
    "channel": (StringType,),
    "unique_key": (StringType,),
    "headers": (StringType,),
    "max_attempts": WHOLE_NUMBERS,
}
OF_JSON = (ArrayType, MapType, StructType, VariantType)
"""What Spark's ``to_json`` takes.  Numbers and booleans are JSON as text."""
JSON = frozenset({"args", "kwargs", "content", "headers"})
NAMES = ("queue", "channel", "unique_key")


def check(schema: StructType, tasks: Mapping[str, Any]) -> None:
    """Checks the names and types of the columns, before any task runs."""
    names = set(schema.fieldNames())
    for field in schema.fields:
        _check_field(field)
    if not names & {"task", "content"}:
        message = f"The DataFrame needs a column task, or content for raw messages. It has {_listed(names)}."
        raise InvalidColumns(message)
    if "content" in names and names & {"args", "kwargs"}:
        message = "content already contains args and kwargs: give either content, or args and kwargs."
        raise InvalidColumns(message)
    if "task" not in names and names & {"args", "kwargs"}:
        message = "args and kwargs are those of a task: the column task is missing. A raw message has content."
        raise InvalidColumns(message)
    if "task" in names and not tasks:
        message = (
            "The DataFrame has a column task. Name the allowed tasks, because executors cannot read the project: "
            'option("tasks", declared(send_receipt, ...)) with django_pgqueue.spark.tasks.declared, or their dotted '
            'paths with commas between. "*" allows all names; a message with an unknown task then fails in the '
            "worker."
        )
        raise InvalidColumns(message)


def _check_field(field: StructField) -> None:
    name, kind = field.name, field.dataType
    if name not in COLUMNS:
        message = f"A message has no column {name!r}. Drop it or rename it. The columns are {_listed(COLUMNS)}."
        raise InvalidColumns(message)
    if isinstance(kind, COLUMNS[name]):
        return
    if isinstance(kind, TimestampNTZType):
        step = f"it has no time zone. Give it one: cast(concat({name}, ' Europe/Berlin') as timestamp_ltz)"
    elif name in JSON and isinstance(kind, OF_JSON):
        step = f"write it as JSON: to_json({name})"
    elif name == "dequeue_at" and isinstance(kind, WHOLE_NUMBERS):
        step = "cast it to bigint, for epoch milliseconds"
    else:
        step = f"cast it to {COLUMNS[name][-1]().simpleString()}"
    message = f"Column {name} is {kind.simpleString()}: {step}."
    raise InvalidColumns(message)


def _listed(names: Any) -> str:
    return ", ".join(names) if isinstance(names, dict) else ", ".join(sorted(names)) or "no columns"
