"""Epoch milliseconds in the database, datetimes in Python: there and back, at any distance."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
from typing import Any, cast

import pytest
from django import forms
from django.core import serializers
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import F, Max, Min
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings, strategies as st

from django_pgqueue.models import Message
from django_pgqueue.models.fields import EpochField
from django_pgqueue.values.times import (
    EARLIEST_MS,
    EPOCH,
    LATEST_MS,
    MAX_MS,
    MILLISECOND,
    MIN_MS,
    EpochDateTime,
    to_epoch_ms,
)

EDGES = [MIN_MS, MIN_MS + 1, EARLIEST_MS - 1, EARLIEST_MS, -1, 0, 1, LATEST_MS, LATEST_MS + 1, MAX_MS]
any_ms = st.sampled_from(EDGES) | st.integers(MIN_MS, MAX_MS) | st.integers(EARLIEST_MS, LATEST_MS)
any_time = st.datetimes(
    EPOCH.replace(year=2, tzinfo=None), EPOCH.replace(year=9998, tzinfo=None), timezones=st.timezones()
)

# The rows of an example are ended by the example itself, so that all may share one test's transaction.
with_database = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def put(*numbers: int) -> list[int]:
    """Messages whose dequeue_at are these numbers, made without the field, and no others."""
    with connection.cursor() as cursor:
        cursor.execute("delete from pgqueue_message")
        cursor.execute(
            "insert into pgqueue_message (dequeue_at, content) select n, '{}' "
            "from unnest(%s::bigint[]) with ordinality as s (n, position) order by position returning id",
            [list(numbers)],
        )
        return [row[0] for row in cursor.fetchall()]


def numbers(messages: Any) -> list[int]:
    return [message.dequeue_at.epoch_ms for message in messages]


@pytest.mark.django_db
class TestInTheDatabase:
    @given(any_ms)
    @with_database
    def test_every_bigint_is_stored_and_read_unchanged(self, ms: int) -> None:
        [pk] = put(ms)
        message = Message.objects.get(pk=pk)
        assert numbers([message]) == [ms]
        message.save()
        assert numbers([Message.objects.get(pk=pk)]) == [ms]

    @given(any_time)
    @with_database
    def test_a_time_is_kept_to_the_millisecond_and_never_later(self, moment: dt.datetime) -> None:
        [pk] = put(0)
        Message.objects.filter(pk=pk).update(dequeue_at=moment)
        kept = Message.objects.get(pk=pk).dequeue_at
        assert dt.timedelta(0) <= moment - kept < MILLISECOND

    @given(st.lists(any_ms, min_size=1, max_size=8))
    @with_database
    def test_rows_are_ordered_by_the_numbers(self, values: list[int]) -> None:
        put(*values)
        assert numbers(Message.objects.order_by("dequeue_at", "id")) == sorted(values)
        ends = Message.objects.aggregate(first=Min("dequeue_at"), last=Max("dequeue_at"))
        assert (ends["first"].epoch_ms, ends["last"].epoch_ms) == (min(values), max(values))

    @given(any_ms, any_ms)
    @with_database
    def test_filters_compare_the_numbers(self, value: int, limit: int) -> None:
        put(value)
        assert Message.objects.filter(dequeue_at=limit).exists() == (value == limit)
        assert Message.objects.filter(dequeue_at__lt=limit).exists() == (value < limit)
        assert Message.objects.filter(dequeue_at__lte=limit).exists() == (value <= limit)
        assert Message.objects.filter(dequeue_at__gt=limit).exists() == (value > limit)
        assert Message.objects.filter(dequeue_at__gte=limit).exists() == (value >= limit)
        assert Message.objects.filter(dequeue_at__in=[limit]).exists() == (value == limit)
        assert Message.objects.filter(dequeue_at__range=(limit, value)).exists() == (value >= limit)

    @given(st.integers(-5, 5), st.integers(-5_000, 5_000))
    @example(1, 1_001)
    @example(-1, -1_001)
    @with_database
    def test_limits_between_two_milliseconds_are_exact(self, ms: int, microseconds: int) -> None:
        put(ms)
        limit = EPOCH + dt.timedelta(microseconds=microseconds)
        value = EPOCH + ms * MILLISECOND
        assert Message.objects.filter(dequeue_at__lt=limit).exists() == (value < limit)
        assert Message.objects.filter(dequeue_at__lte=limit).exists() == (value <= limit)
        assert Message.objects.filter(dequeue_at__gt=limit).exists() == (value > limit)
        assert Message.objects.filter(dequeue_at__gte=limit).exists() == (value >= limit)
        assert Message.objects.filter(dequeue_at__range=(limit, limit)).exists() == (value == limit)
        text = limit.isoformat()
        assert Message.objects.filter(dequeue_at__lt=text).exists() == (value < limit)
        assert Message.objects.filter(dequeue_at__gte=text).exists() == (value >= limit)
        assert Message.objects.filter(dequeue_at__range=(text, text)).exists() == (value == limit)

    def test_null_is_none(self) -> None:
        put(0)
        assert Message.objects.get(unlock_at__isnull=True).unlock_at is None
        assert not Message.objects.filter(unlock_at__isnull=False).exists()

    def test_a_filter_may_compare_columns(self) -> None:
        put(7)
        Message.objects.update(dequeue_at=F("dequeue_at"))
        assert numbers(Message.objects.filter(dequeue_at__gte=F("dequeue_at"))) == [7]

    @pytest.mark.parametrize("form", ["json", "jsonl", "xml"])
    @given(ms=any_ms)
    @with_database
    def test_a_dumped_row_can_be_loaded(self, form: str, ms: int) -> None:
        [pk] = put(ms)
        [loaded] = serializers.deserialize(form, serializers.serialize(form, Message.objects.all()))
        loaded.save()
        assert numbers([Message.objects.get(pk=pk)]) == [ms]


class TestInPython:
    @given(any_ms)
    def test_copies_keep_the_number(self, ms: int) -> None:
        value = EpochDateTime.from_ms(ms)
        assert pickle.loads(pickle.dumps(value)).epoch_ms == ms  # noqa: S301
        assert copy.deepcopy(value).epoch_ms == ms

    @given(any_ms)
    def test_a_time_computed_from_a_field_value_has_its_own_number(self, ms: int) -> None:
        start = EpochDateTime.from_ms(ms).replace(year=2020)
        later = start + dt.timedelta(seconds=1)
        assert to_epoch_ms(later) == to_epoch_ms(start) + 1_000
        assert pickle.loads(pickle.dumps(later)) == later  # noqa: S301

    @given(any_ms, st.timezones())
    def test_any_time_zone_can_show_it(self, ms: int, zone: dt.tzinfo) -> None:
        with timezone.override(zone):
            assert timezone.localtime(EpochDateTime.from_ms(ms)).isoformat()

    @pytest.mark.parametrize(
        ("given_value", "ms"),
        [
            (dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), 1_000),
            (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC), -1),
            (dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), 0),
            (dt.date(1970, 1, 2), 86_400_000),
            ("1970-01-01T00:00:01Z", 1_000),
            ("1970-01-01 00:00:01", 1_000),
            ("1970-01-02", 86_400_000),
            ("1500", 1_500),
            ("-1500", -1_500),
            ("20261120", 20_261_120),
            (str(MAX_MS), MAX_MS),
            (MIN_MS, MIN_MS),
        ],
    )
    def test_a_value_may_be_given_in_many_ways(self, given_value: object, ms: int) -> None:
        assert EpochField().get_prep_value(given_value) == ms

    @pytest.mark.parametrize(
        "wrong", ["", "soon", "2026-13-01", "12:30", 1.5, True, 2**63, -(2**63) - 1, str(2**63), "9" * 5_000, object()]
    )
    def test_anything_else_is_refused_with_its_value(self, wrong: object) -> None:
        with pytest.raises(ValidationError) as refused:
            EpochField().to_python(wrong)
        assert str(wrong) in refused.value.messages[0]


MessageForm = cast("type[forms.ModelForm[Message]]", forms.modelform_factory(Message, fields=["dequeue_at"]))


class TestInForms:
    @given(any_ms)
    @settings(deadline=None)
    def test_a_form_sent_back_unchanged_changes_nothing(self, ms: int) -> None:
        message = Message(dequeue_at=EpochDateTime.from_ms(ms))
        with timezone.override("Asia/Kolkata"):
            shown = MessageForm(instance=message)["dequeue_at"].value()
            form = MessageForm({"dequeue_at": shown}, instance=message)
            assert form.is_valid(), form.errors
            assert not form.has_changed()
        assert to_epoch_ms(form.save(commit=False).dequeue_at) == ms

    @pytest.mark.parametrize(
        ("zone", "utc", "shown"),
        [
            ("Europe/Berlin", "2027-10-31 00:30:00Z", "2027-10-31 02:30:00+02:00"),
            ("Europe/Berlin", "2027-10-31 01:30:00.5Z", "2027-10-31 02:30:00.500+01:00"),
            ("Europe/Berlin", "2027-10-31 02:30:00Z", "2027-10-31 03:30:00"),
            ("Europe/Berlin", "2027-03-28 01:30:00Z", "2027-03-28 03:30:00"),
            ("Australia/Lord_Howe", "2027-04-03 14:45:00Z", "2027-04-04 01:45:00+11:00"),
        ],
    )
    def test_a_time_that_the_clock_shows_twice_has_its_offset(self, zone: str, utc: str, shown: str) -> None:
        message = Message(dequeue_at=EpochDateTime.from_ms(to_epoch_ms(dt.datetime.fromisoformat(utc))))
        with timezone.override(zone):
            assert MessageForm(instance=message)["dequeue_at"].value() == shown
            form = MessageForm({"dequeue_at": shown}, instance=message)
            assert form.is_valid(), form.errors
            assert not form.has_changed()

    def test_a_form_shows_the_time_of_the_current_zone(self) -> None:
        message = Message(dequeue_at=EpochDateTime.from_ms(1_500))
        with timezone.override("Asia/Kolkata"):
            assert 'value="1970-01-01 05:30:01.500"' in str(MessageForm(instance=message)["dequeue_at"])

    def test_people_may_write_a_time_or_a_number(self) -> None:
        for text, ms in {"2026-11-20 10:00": 1_795_168_800_000, " -5 ": -5, str(MAX_MS): MAX_MS}.items():
            form = MessageForm({"dequeue_at": text})
            assert form.is_valid(), (text, form.errors)
            assert to_epoch_ms(form.cleaned_data["dequeue_at"]) == ms

    @pytest.mark.parametrize("wrong", ["soon", "", "9" * 19, "2026-13-01"])
    def test_an_invalid_value_is_a_form_error(self, wrong: str) -> None:
        assert MessageForm({"dequeue_at": wrong}).errors["dequeue_at"]
