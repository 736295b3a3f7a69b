"""Enqueueing: what Django's documentation says of backends, on one that is a table."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.utils import timezone

from django_pgqueue import testing
from django_pgqueue.backend import Call, enqueue_many
from django_pgqueue.compat import (
    AnyTaskResult,
    InvalidTask,
    TaskResult,
    TaskResultStatus,
)
from django_pgqueue.exceptions import ContentTooLarge, InvalidContent, InvalidMessage, PgQueueError
from django_pgqueue.models import Message
from django_pgqueue.routing import Exchange
from tests.support import tasks
from tests.support.django_tasks_api import PACKAGE, default_task_backend
from tests.support.fixtures.backend import no_queries
from tests.support.scheduled import tasks as scheduled
from tests.support.site.receivers import listening

if TYPE_CHECKING:
    import psycopg
    from pytest_django.fixtures import Settings

    from django_pgqueue.tasks import PgQueueTask

pytestmark = pytest.mark.django_db

OURS = "django_pgqueue.backend.PgQueueBackend"
ROOT = Path(__file__).resolve().parent.parent.parent


def message(result: AnyTaskResult) -> Message:
    return Message.objects.get(pk=result.id)


def due_ms(result: AnyTaskResult) -> int:
    """``dequeue_at`` as it stands in the row."""
    with connection.cursor() as cursor:
        cursor.execute("select dequeue_at from pgqueue_message where id = %s", (result.id,))
        return int(cursor.fetchone()[0])


def in_ms(moment: dt.datetime) -> float:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(milliseconds=1)


class TestBackend:
    def test_its_options_are_kept_as_they_stand_in_the_settings(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"MAX_ATTEMPTS": 3}}}
        assert default_task_backend.options == {"MAX_ATTEMPTS": 3}
        assert default_task_backend.queues == set()

    def test_the_backend_can_be_created_before_the_apps_are_ready(self) -> None:
        program = (
            "from django.conf import settings\n"
            f"settings.configure(TASKS={{'default': {{'BACKEND': {OURS!r}, 'QUEUES': []}}}})\n"
            "from django_pgqueue.tasks import task\n"
            "@task(queue_name='mail', max_attempts=3)\n"
            "def send(): pass\n"
            "assert type(send.get_backend()).__name__ == 'PgQueueBackend'\n"
            "from django.apps import apps\n"
            "assert not apps.ready\n"
        )
        subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, check=True, timeout=60)


class TestEnqueue:
    @pytest.mark.parametrize("task", [tasks.do_nothing, tasks.do_nothing_async], ids=["plain", "async"])
    @pytest.mark.parametrize("how", ["enqueue", "aenqueue", "backend.enqueue", "backend.aenqueue"])
    def test_enqueue_returns_a_result_that_is_ready(self, task: Any, how: str) -> None:
        before = timezone.now()
        result = {
            "enqueue": lambda: task.enqueue(1, two=[3]),
            "aenqueue": lambda: async_to_sync(task.aenqueue)(1, two=[3]),
            "backend.enqueue": lambda: default_task_backend.enqueue(task, (1,), {"two": [3]}),
            "backend.aenqueue": lambda: async_to_sync(default_task_backend.aenqueue)(task, (1,), {"two": [3]}),
        }[how]()

        assert isinstance(result, TaskResult)
        assert result.task == task
        assert isinstance(result.id, str)
        assert 0 < len(result.id) < 64
        assert result.status is TaskResultStatus.READY
        assert result.is_finished is False
        # A TestCase is one transaction, and its time is the time of the transaction.
        assert result.enqueued_at is not None
        assert timezone.is_aware(result.enqueued_at)
        assert abs(result.enqueued_at - before) < dt.timedelta(minutes=1)
        assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
        assert (result.args, result.kwargs) == ([1], {"two": [3]})
        assert result.backend == "default"
        assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)
        with pytest.raises(ValueError, match="Task has not finished yet"):
            _ = result.return_value

    def test_coroutines_enqueue_at_the_same_time(self) -> None:
        async def several() -> list[AnyTaskResult]:
            return list(await asyncio.gather(*(tasks.echo.aenqueue(n) for n in range(10))))

        results = async_to_sync(several)()
        assert [result.args for result in results] == [[n] for n in range(10)]
        assert len({result.id for result in results}) == 10

    @pytest.mark.parametrize(
        ("args", "kwargs", "why"),
        [
            ((), {}, "missing a required argument: 'to'"),
            (("Ann", "Bob"), {}, "too many positional arguments"),
            (("Ann",), {"polit": True}, "got an unexpected keyword argument 'polit'"),
        ],
    )
    def test_arguments_that_the_function_does_not_take_are_refused_before_any_sql(
        self, args: tuple[str, ...], kwargs: dict[str, bool], why: str
    ) -> None:
        send: PgQueueTask[..., Any] = scheduled.send
        with no_queries(), pytest.raises(TypeError) as caught:
            send.enqueue(*args, **kwargs)
        words = f"tests.support.scheduled.tasks.send cannot be called with these arguments: {why}."
        assert str(caught.value) == words
        with pytest.raises(InvalidMessage) as refused:
            enqueue_many(send, [Call(args=("Ann",)), Call(args=args, kwargs=kwargs)])
        assert str(refused.value) == f"calls[1]: {words}"
        assert not Message.objects.exists()

    def test_the_row_has_the_values_of_the_task(self) -> None:
        fail_thrice: PgQueueTask[..., Any] = tasks.fail_thrice
        row = message(fail_thrice.using(priority=-7, queue_name="mail").enqueue(1, two=3))
        assert (row.task, row.queue, row.priority) == ("tests.support.tasks.fail_thrice", "mail", -7)
        assert row.content == {"args": [1], "kwargs": {"two": 3}}
        assert (row.max_attempts, row.attempt, row.worker, row.channel) == (3, 0, None, None)

    def test_max_attempts_may_stand_in_the_options(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"MAX_ATTEMPTS": 9}}}
        assert message(tasks.do_nothing.enqueue()).max_attempts == 9
        assert message(tasks.do_nothing.using(max_attempts=2).enqueue()).max_attempts == 2

    def test_the_task_is_validated_again(self, settings: Settings) -> None:
        task = tasks.do_nothing.using(queue_name="unknown")
        settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": ["queue-1"]}}
        for enqueue in (task.enqueue, async_to_sync(task.aenqueue)):
            with pytest.raises(InvalidTask, match="Queue 'unknown' is not valid for backend"):
                enqueue()
        assert not Message.objects.exists()

    @pytest.mark.parametrize("task", [tasks.Jobs.inside_a_class, tasks.under_another_name], ids=["class", "name"])
    def test_a_task_that_no_worker_could_find_is_refused(self, task: Any) -> None:
        with no_queries(), pytest.raises(InvalidTask, match="no worker can find"):
            task.enqueue()

    def test_a_caller_s_list_is_not_shared_with_the_result(self) -> None:
        basket = ["tea"]
        result = tasks.do_nothing.enqueue(basket)
        basket.append("milk")
        assert result.args == [["tea"]]


class TestArguments:
    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ((1, 2), [1, 2]),
            (((1, (2,)),), [[1, [2]]]),
            (b"bytes \xc3\xa9", "bytes é"),
            (range(3), [0, 1, 2]),
            ({"a": (b"b",)}, {"a": ["b"]}),
            (bytearray(b"ab"), [97, 98]),
            (TaskResultStatus.READY, "READY"),
            (True, True),
            (1.0, 1.0),
        ],
    )
    def test_arguments_become_json_as_in_django(self, given: Any, kept: Any) -> None:
        result = tasks.do_nothing.enqueue(given, key=given)
        assert (result.args, result.kwargs) == ([kept], {"key": kept})
        assert type(result.args[0]) is type(kept) or isinstance(result.args[0], str)
        assert message(result).content == {"args": [kept], "kwargs": {"key": kept}}

    @pytest.mark.parametrize(
        "value", [Group(name="tea"), float("nan"), b"\xff", {1: "one"}], ids=lambda value: type(value).__name__
    )
    def test_arguments_that_are_not_json_are_refused_before_any_sql(self, value: Any) -> None:
        with transaction.atomic():
            for args, kwargs, place in (
                ([1, [value]], {}, r"\['args'\]\[1\]"),
                ([], {"key": value}, r"\['kwargs'\]\['key'\]"),
            ):
                with no_queries(), pytest.raises(InvalidContent, match=place) as refused:
                    tasks.do_nothing.enqueue(*args, **kwargs)
                assert isinstance(refused.value, TypeError)  # what Django raises for objects …
                assert isinstance(refused.value, ValueError)  # … and for bytes that are no text
            Group.objects.create(name="after")
        assert Group.objects.exists()
        assert not Message.objects.exists()

    def test_the_error_has_the_text_of_django(self) -> None:
        with pytest.raises(TypeError, match=r"Unsupported type: .*set.*primary key"):
            tasks.do_nothing.enqueue({1, 2})

    def test_the_options_limit_the_size_of_a_call(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"MAX_CONTENT_BYTES": 100}}}
        room = 100 - len('{"args":[""],"kwargs":{}}')
        tasks.do_nothing.enqueue("é" * (room // 2))
        with no_queries(), pytest.raises(ContentTooLarge, match=r"101 bytes .* may have 100\b.*MAX_CONTENT_BYTES"):
            tasks.do_nothing.enqueue("x" * (room + 1))
        assert Message.objects.count() == 1

    @pytest.mark.parametrize("version", [42, "2024\n10", ["2024"]], ids=repr)
    def test_a_version_that_is_none_is_named(self, settings: Settings, version: Any) -> None:
        """A site that runs no check would read that its queue is outdated."""
        settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"VERSION": version}}}
        said = rf"VERSION in the OPTIONS of TASKS is {re.escape(repr(version))}: it must be a text"
        for enqueue in (tasks.do_nothing.enqueue, Exchange("orders").publish):
            with pytest.raises(PgQueueError, match=said) as refused:
                enqueue("order.created", {})
            assert type(refused.value) is PgQueueError


class TestRunAfter:
    def test_without_it_a_message_is_due_when_it_was_enqueued(self) -> None:
        result = tasks.do_nothing.enqueue()
        assert result.enqueued_at is not None
        assert due_ms(result) == math.floor(in_ms(result.enqueued_at))

    @pytest.mark.parametrize(
        "at",
        [
            dt.datetime(2030, 6, 1, 12, 30, tzinfo=dt.UTC),
            dt.datetime(2030, 6, 1, 12, 30, tzinfo=ZoneInfo("Asia/Kathmandu")),
            dt.datetime(1969, 7, 20, 20, 17, 40, 1, tzinfo=dt.UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.timezone(dt.timedelta(hours=-12))),
            dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),
        ],
        ids=str,
    )
    def test_an_aware_time_is_kept_to_the_microsecond_and_never_early(self, at: dt.datetime) -> None:
        result = tasks.do_nothing.using(run_after=at).enqueue()
        assert result.task.run_after == at
        assert due_ms(result) == math.ceil(in_ms(at))
        reloaded = tasks.do_nothing.get_result(result.id)
        assert reloaded == result
        assert reloaded.task.run_after == at

    def test_without_use_tz_an_aware_time_is_what_it_is(self, settings: Settings) -> None:
        settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Kathmandu"
        at = dt.datetime(2030, 6, 1, 12, 30, tzinfo=dt.UTC)
        result = tasks.do_nothing.using(run_after=at).enqueue()
        assert due_ms(result) == in_ms(at)
        assert tasks.do_nothing.get_result(result.id) == result

    @pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
    def test_without_use_tz_a_naive_time_is_in_the_project_s_time_zone(self, settings: Settings, zone: str) -> None:
        settings.USE_TZ, settings.TIME_ZONE = False, zone
        at = dt.datetime(2030, 6, 1, 12, 30, 0, 123_456)  # noqa: DTZ001
        result = tasks.do_nothing.using(run_after=at).enqueue()
        assert due_ms(result) == math.ceil(in_ms(at.replace(tzinfo=ZoneInfo(zone))))
        reloaded = tasks.do_nothing.get_result(result.id)
        assert reloaded == result
        assert reloaded.task.run_after == at
        assert result.enqueued_at is not None
        assert timezone.is_naive(result.enqueued_at)

    @pytest.mark.parametrize(
        "delay",
        [
            dt.timedelta(hours=1),
            dt.timedelta(microseconds=1),
            dt.timedelta(days=-3),
            dt.timedelta.max,
            dt.timedelta.min,
        ],
        ids=str,
    )
    def test_a_timedelta_counts_from_the_enqueue_on(self, delay: dt.timedelta) -> None:
        result = tasks.do_nothing.using(run_after=delay).enqueue()
        assert result.enqueued_at is not None
        wait_ms = -((-delay) // dt.timedelta(milliseconds=1)) if delay != dt.timedelta.max else 86_400_000 * 10**9
        assert due_ms(result) == math.floor(in_ms(result.enqueued_at)) + wait_ms
        assert tasks.do_nothing.get_result(result.id) == result

    def test_higher_priorities_run_sooner(self) -> None:
        for priority in (-100, 5, 100, 0, 1.0, True):
            tasks.echo.using(priority=priority).enqueue(priority)  # type: ignore[arg-type]
        assert [result.args[0] for result in testing.drain()] == [100, 5, 1.0, True, 0, -100]


class TestTransactions:
    @pytest.fixture
    def seen(self, stranger: psycopg.Connection[Any]) -> Any:
        """Number of messages that somebody else sees."""
        return lambda: stranger.execute("select count(*) from pgqueue_message").fetchone()[0]  # type: ignore[index]

    def test_a_message_commits_with_its_transaction(self, seen: Any) -> None:
        with transaction.atomic():
            tasks.do_nothing.enqueue()
            assert seen() == 0
        assert seen() == 1

    def test_a_message_rolls_back_with_its_transaction(self, seen: Any) -> None:
        with transaction.atomic():
            result = tasks.do_nothing.enqueue()
            assert tasks.do_nothing.get_result(result.id) == result
            transaction.set_rollback(True)
        assert seen() == 0


class TestSignals:
    def test_a_failing_receiver_does_not_fail_the_enqueue(self, caplog: pytest.LogCaptureFixture) -> None:
        def receive(**_: Any) -> None:
            raise ZeroDivisionError

        with listening("enqueued", receive), caplog.at_level(logging.ERROR, logger="django.dispatch"):
            result = tasks.do_nothing.enqueue()
        assert [drained.id for drained in testing.drain()] == [result.id]
        assert "ZeroDivisionError" in caplog.text

    def test_django_s_log_has_each_step(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG, logger=PACKAGE):
            result = tasks.do_nothing.enqueue()
            testing.drain()
        lines = [record.getMessage() for record in caplog.records if f"id={result.id} path=" in record.getMessage()]
        assert [line.partition("do_nothing ")[2] for line in lines] == [
            "enqueued backend=default",
            "state=RUNNING",
            "state=SUCCESSFUL",
        ]
