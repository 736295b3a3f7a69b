"""Expressions that PostgreSQL computes, because Python cannot hold the values or would fetch too much."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from django.db.models import Aggregate, BooleanField, DurationField, ExpressionWrapper, FloatField, Func, TextField
from django.db.models.expressions import RawSQL

from django_pgqueue.models.fields import NamesField
from django_pgqueue.monitoring.overview.clamped import Moment

if TYPE_CHECKING:
    from django.db.models import Expression

PRETTY_LENGTH = 100_000
SHORT_LENGTH = 300


class Pretty(Func):
    """JSON formatted for people, cut off at PRETTY_LENGTH.

    PostgreSQL formats it: a number in jsonb can have more digits than Python agrees to read.
    """

    template = f"left(jsonb_pretty(%(expressions)s), {PRETTY_LENGTH + 1})"
    output_field = TextField()


class Short(Func):
    """The beginning of a text, and one more character if the text is longer."""

    template = "left(%(expressions)s, %(length)s)"
    output_field = TextField()

    def __init__(self, *expressions: Any, length: int = SHORT_LENGTH, **extra: Any) -> None:
        super().__init__(*expressions, length=length + 1, **extra)


class SmallJson(Func):
    """JSON as text, if it is small: a list does not read megabytes for each of its rows."""

    template = "case when pg_column_size(%(expressions)s) <= 2000 then (%(expressions)s)::text end"
    output_field = TextField()


class JoinedNames(Aggregate):
    """The distinct values of a text column."""

    template = "array_agg(distinct %(expressions)s)"
    output_field = NamesField()
    allows_composite_expressions = False


class Span(DurationField):  # type: ignore[type-arg]
    """An interval that comes as a number: psycopg reads only those of the IntervalStyle postgres."""

    def select_format(self, _compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        return f"(extract(epoch from {sql}) * 1000000)::bigint", params

    def from_db_value(self, value: int | None, *_: Any) -> dt.timedelta | None:
        return None if value is None else dt.timedelta(microseconds=value)


def duration() -> Expression:
    return ExpressionWrapper(Moment("finished_at") - Moment("started_at"), output_field=Span())


class Waited(Func):
    """Milliseconds from when an attempt could have begun, not before its message existed, until it did."""

    template = (
        "case when isfinite(started_at) and isfinite(created_at) then "
        "(extract(epoch from started_at) * 1000)::double precision "
        "- greatest(dequeue_at::double precision, (extract(epoch from created_at) * 1000)::double precision) end"
    )
    output_field = FloatField()


class ErrorGroupKey(Func):
    """The group of an attempt's error."""

    template = "pgqueue_attempt_error_group(error_class, error_message, traceback)"
    output_field = TextField()


def has_argument(value: str | float | bool) -> Expression:
    """Whether a value stands anywhere in the content, as in ``pgqueue_edit_messages``."""
    text = value if isinstance(value, str) else json.dumps(value)
    return RawSQL(
        "jsonb_path_exists(content, '$.** ? (@ == $value || @ == $text)', %s::jsonb)",
        [json.dumps({"value": value, "text": text}, ensure_ascii=False)],  # SQL_ASCII refuses escapes
        output_field=BooleanField(),
    )
