"""The columns of the history and of waiting messages, as Spark and Arrow know them.

The names are those of the SQL columns.  Epoch milliseconds (``bigint``) stay numbers, because they may be negative or
very large.  ``jsonb`` becomes text, for ``from_json``, ``get_json_object`` or ``parse_json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from django_pgqueue.spark.errors import InvalidColumns

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

LONG, INTEGER, SHORT = LongType(), IntegerType(), ShortType()
TEXT, JSON, BOOLEAN, TIMESTAMP = StringType(), StringType(), BooleanType(), TimestampType()


def struct(columns: Iterable[tuple[str, DataType, bool]]) -> StructType:
    """Returns a schema from names, types, and whether a value can be null."""
    return StructType([StructField(name, kind, nullable) for name, kind, nullable in columns])


ATTEMPTS = struct(
    [
        ("id", LONG, False),
        ("message_id", LONG, False),
        ("dequeue_at", LONG, False),
        ("transaction_id", LONG, False),
        ("created_at", TIMESTAMP, False),
        ("started_at", TIMESTAMP, True),
        ("finished_at", TIMESTAMP, False),
        ("attempt", INTEGER, False),
        ("max_attempts", INTEGER, True),
        ("priority", SHORT, False),
        ("final", BOOLEAN, False),
        ("status", TEXT, False),
        ("queue", TEXT, False),
        ("channel", TEXT, True),
        ("task", TEXT, True),
        ("unique_key", TEXT, True),
        ("worker", TEXT, True),
        ("error_class", TEXT, True),
        ("error_message", TEXT, True),
        ("traceback", TEXT, True),
        ("result", JSON, True),
        ("content", JSON, True),
        ("headers", JSON, True),
    ]
)

MESSAGES = struct(
    [
        ("id", LONG, False),
        ("dequeue_at", LONG, False),
        ("unlock_at", LONG, True),
        ("check_at", LONG, True),
        ("awaited_id", LONG, True),
        ("alone_at", LONG, True),
        ("created_at", TIMESTAMP, False),
        ("locked_at", TIMESTAMP, True),
        ("cancel_requested_at", TIMESTAMP, True),
        ("attempt", INTEGER, False),
        ("max_attempts", INTEGER, True),
        ("checks", INTEGER, True),
        ("priority", SHORT, False),
        ("lost", SHORT, False),
        ("in_line", BOOLEAN, False),
        ("unique_until_started", BOOLEAN, False),
        ("queue", TEXT, False),
        ("channel", TEXT, True),
        ("task", TEXT, True),
        ("unique_key", TEXT, True),
        ("worker", TEXT, True),
        ("after_policy", TEXT, True),
        ("after_ids", ArrayType(LONG), True),
        ("content", JSON, False),
        ("headers", JSON, True),
        ("state", JSON, True),
        ("progress", JSON, True),
        ("last_error", TEXT, True),
        ("unknown_since", LONG, True),
        ("parked_at", LONG, True),
        ("max_lost", SHORT, True),
        ("version", TEXT, True),
        ("suspended_attempt", INTEGER, True),
        ("awaited_event", TEXT, True),
    ]
)

STEPS = struct(
    [
        ("message_id", LONG, False),
        ("recorded_at", TIMESTAMP, False),
        ("started_at", TIMESTAMP, True),
        ("finished_at", TIMESTAMP, False),
        ("until", LONG, True),
        ("attempt", INTEGER, False),
        ("kind", TEXT, False),
        ("status", TEXT, False),
        ("name", TEXT, False),
        ("error", TEXT, True),
        ("result", JSON, True),
    ]
)

EVENTS = struct([("name", TEXT, False), ("emitted_at", TIMESTAMP, False), ("payload", JSON, False)])

APPROVALS = struct(
    [
        ("message_id", LONG, False),
        ("asked_at", TIMESTAMP, False),
        ("decided_at", TIMESTAMP, True),
        ("approved", BOOLEAN, True),
        ("name", TEXT, False),
        ("permission", TEXT, True),
        ("decided_by", TEXT, True),
        ("comment", TEXT, True),
        ("details", JSON, True),
    ]
)

TABLES = {"attempts": ATTEMPTS, "messages": MESSAGES, "steps": STEPS, "events": EVENTS, "approvals": APPROVALS}
SQL_NAMES = {
    "attempts": "pgqueue_attempt",
    "messages": "pgqueue_message",
    "steps": "pgqueue_step",
    "events": "pgqueue_event",
    "approvals": "pgqueue_approval",
}
JSON_COLUMNS = frozenset({"result", "content", "headers", "state", "progress", "payload", "details"})


def chosen(table: str, columns: Iterable[str]) -> StructType:
    """Returns the schema of some columns of a table, in the order given; of all columns when none is given."""
    whole = TABLES[table]
    fields = [_field(table, name) for name in columns]
    return StructType(fields) if fields else whole


def checked(table: str, schema: StructType) -> StructType:
    """Checks that a schema from ``.schema(...)`` has known names, with the types of the table."""
    for field in schema.fields:
        known = _field(table, field.name)
        if field.dataType != known.dataType:
            message = (
                f"Column {field.name!r} of {table} is {known.dataType.simpleString()}, but "
                f"{field.dataType.simpleString()} in the schema. Read the column without a change of its type, and "
                "cast it afterwards."
            )
            raise InvalidColumns(message)
    return schema


def arrow(schema: StructType) -> pa.Schema:
    """Returns the schema of the record batches that Spark expects."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 -- needs pyarrow, and takes a while

    return to_arrow_schema(schema, timezone="UTC")


def _field(table: str, name: str) -> StructField:
    for field in TABLES[table].fields:
        if field.name == name:
            return field
    message = f"{table} has no column {name!r}. It has {', '.join(TABLES[table].fieldNames())}."
    raise InvalidColumns(message)
