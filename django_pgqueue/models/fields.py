"""Model fields of the tables.  Times are epoch milliseconds in a BIGINT and an aware datetime in Python."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import lookups
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy

from django_pgqueue.values.times import MAX_MS, MIN_MS, EpochDateTime, aware, time_zone, to_epoch_ms

WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


class EpochInput(forms.DateTimeInput):
    supports_microseconds = True


class EpochFormField(forms.DateTimeField):
    """Form field that shows a time with its milliseconds, and a time outside of the calendar as its number.

    So a form that is submitted unchanged changes nothing.
    """

    widget = EpochInput

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, EpochDateTime):
            return super().prepare_value(value)
        if not value.is_exact:
            return str(value.epoch_ms)
        shown = value.astimezone(time_zone())
        # With its offset where the clock, which is put back, shows the same time twice.
        if shown.replace(fold=0).utcoffset() == shown.replace(fold=1).utcoffset():
            shown = shown.replace(tzinfo=None)
        return shown.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")

    def to_python(self, value: Any) -> dt.datetime | None:
        if isinstance(value, str) and WHOLE_NUMBER.fullmatch(value.strip()):
            ms = int(value)
            if MIN_MS <= ms <= MAX_MS:
                return EpochDateTime.from_ms(ms)
        found: dt.datetime | None = super().to_python(value)
        return None if found is None else aware(found)  # it is compared with the time that the row has


class EpochField(models.Field):  # type: ignore[type-arg]
    """Field with milliseconds since 1970 in a BIGINT, and an aware datetime in Python, in forms and in filters.

    Filters and ordering compare the numbers in the database, so they can use indexes on the column.  It takes
    datetimes, ISO 8601 text and numbers of milliseconds (also as text of digits).
    """

    description = "Date and time, as milliseconds since 1970"
    default_error_messages = {  # noqa: RUF012 -- Django's own form
        "invalid": gettext_lazy("“%(value)s” is neither a date with a time nor a number of milliseconds.")
    }

    def db_type(self, connection: Any) -> str:  # noqa: ARG002
        return "bigint"

    def from_db_value(self, value: int | None, expression: Any, connection: Any) -> EpochDateTime | None:  # noqa: ARG002
        return None if value is None else EpochDateTime.from_ms(value)

    def to_python(self, value: Any) -> dt.datetime | None:
        if value is None or isinstance(value, dt.datetime):
            return value
        if isinstance(value, dt.date):
            return aware(dt.datetime(value.year, value.month, value.day))  # noqa: DTZ001
        if isinstance(value, int) and not isinstance(value, bool) and MIN_MS <= value <= MAX_MS:
            return EpochDateTime.from_ms(value)
        if isinstance(value, str) and (parsed := self._parse(value)) is not None:
            return parsed
        raise ValidationError(self.error_messages["invalid"], code="invalid", params={"value": value})

    def _parse(self, value: str) -> dt.datetime | None:
        if WHOLE_NUMBER.fullmatch(value.strip()):  # first: to Python, 20261120 is also a date
            ms = int(value)
            return EpochDateTime.from_ms(ms) if MIN_MS <= ms <= MAX_MS else None
        try:
            return parse_datetime(value)
        except ValueError:
            return None

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        if value is None or hasattr(value, "resolve_expression"):
            return value
        moment = self.to_python(value)
        return None if moment is None else to_epoch_ms(moment)

    def value_to_string(self, obj: models.Model) -> str:
        value = self.value_from_object(obj)
        return "" if value is None else str(to_epoch_ms(value))

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"form_class": EpochFormField, **kwargs})


def first_not_before(limit: Any, prepared: Any) -> Any:
    """Returns the first millisecond that is not before a time: for a time between two of them, the later one."""
    moment = EpochField().to_python(limit) if isinstance(limit, str) else limit
    return to_epoch_ms(moment, up=True) if isinstance(moment, dt.datetime) else prepared


class _RoundedUp:
    rhs: Any

    def get_prep_lookup(self) -> Any:
        return first_not_before(self.rhs, super().get_prep_lookup())  # type: ignore[misc]


@EpochField.register_lookup
class EpochGreaterThanOrEqual(_RoundedUp, lookups.GreaterThanOrEqual):
    pass


@EpochField.register_lookup
class EpochLessThan(_RoundedUp, lookups.LessThan):
    pass


@EpochField.register_lookup
class EpochRange(lookups.Range):
    def get_prep_lookup(self) -> Any:
        first, last = super().get_prep_lookup()
        return first_not_before(self.rhs[0] if isinstance(self.rhs, list | tuple) else None, first), last


class ListField(models.Field):  # type: ignore[type-arg]
    """Field for an array, which psycopg reads as a list.  Django's own ArrayField needs django.contrib.postgres."""

    def to_python(self, value: Any) -> Any:
        """Reads the text that fixtures have."""
        return json.loads(value) if isinstance(value, str) else value

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj))


class NamesField(ListField):
    """Field for a text[]."""

    description = "List of names"

    def db_type(self, connection: Any) -> str:  # noqa: ARG002
        return "text[]"


class IdsField(ListField):
    """Field for a bigint[]."""

    description = "List of ids"

    def db_type(self, connection: Any) -> str:  # noqa: ARG002
        return "bigint[]"
