"""``drain`` and ``clock`` in every kind of test that a project writes."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import TestCase, TransactionTestCase

from django_pgqueue import functions
from django_pgqueue.compat import AnyTaskResult, TaskResultStatus, task_finished
from django_pgqueue.exceptions import PgQueueError, UnknownTask
from django_pgqueue.models import Attempt, Message
from django_pgqueue.testing import adrain, assert_enqueued, assert_not_enqueued, clock, drain, inline
from tests.support import tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg
    from pytest_django.fixtures import Settings

HOUR = dt.timedelta(hours=1)
NOON = dt.datetime(2030, 6, 1, 12, tzinfo=dt.UTC)


def names(results: list[AnyTaskResult]) -> list[str]:
    return [result.task.name for result in results]


def clock_setting() -> str:
    with connection.cursor() as cursor:
        cursor.execute("select current_setting('pgqueue.now', true)")
        return cursor.fetchone()[0] or ""


@pytest.mark.django_db
class TestDrain:
    def test_drain_returns_the_results_in_the_order_of_the_runs(self) -> None:
        enqueued = [tasks.echo.enqueue(n) for n in range(3)]
        results = drain()
        assert [result.id for result in results] == [result.id for result in enqueued]
        assert [result.status for result in results] == [TaskResultStatus.SUCCESSFUL] * 3
        assert not Message.objects.exists()
        assert drain() == []

    def test_plain_and_async_jobs_write_in_the_test_s_transaction(self) -> None:
        tasks.add_group.enqueue("tea")
        tasks.add_group_async.enqueue("milk")
        assert [result.return_value for result in drain()] == list(Group.objects.values_list("pk", flat=True))
        assert set(Group.objects.values_list("name", flat=True)) == {"tea", "milk"}

    def test_only_the_queues_that_are_named_are_drained(self) -> None:
        for queue in ("mail", "slow", "default"):
            tasks.echo.using(queue_name=queue).enqueue(queue)
        assert [result.args for result in drain(["mail"])] == [["mail"]]
        assert {result.args[0] for result in drain(["default", "slow", "unknown"])} == {"default", "slow"}
        assert drain([]) == []

    def test_a_single_name_instead_of_a_list_is_refused(self) -> None:
        with pytest.raises(PgQueueError, match=r"use \['mail'\]"):
            drain("mail")

    @pytest.mark.parametrize(
        "ask",
        [drain, lambda: inline().__enter__(), lambda: assert_enqueued(tasks.echo)],
        ids=["drain", "inline", "assert"],
    )
    def test_a_backend_that_is_not_ours_is_refused(self, settings: Settings, ask: Callable[[], object]) -> None:
        settings.TASKS = {"default": {"BACKEND": "django_pgqueue.stand_ins.DummyBackend", "QUEUES": []}}
        with pytest.raises(PgQueueError, match=r"DummyBackend, which keeps .* task_backends\['default'\]\.results\.$"):
            ask()

    def test_jobs_that_enqueue_jobs_are_drained_to_the_end(self) -> None:
        tasks.enqueue_next.enqueue(3)
        tasks.enqueue_next_async.enqueue(2)
        assert sorted(result.args[0] for result in drain()) == [0, 0, 1, 1, 2, 2, 3]

    def test_a_limit_counts_attempts(self) -> None:
        tasks.enqueue_next.enqueue(100)
        assert [result.args for result in drain(limit=3)] == [[100], [99], [98]]
        assert drain(limit=0) == []
        assert Message.objects.count() == 1

    def test_retries_that_are_due_run_as_well(self) -> None:
        tasks.succeed_at_third.enqueue()
        first, second, third = drain()
        assert first.id == second.id == third.id
        assert [r.status for r in (first, second, third)] == [
            TaskResultStatus.READY,
            TaskResultStatus.READY,
            TaskResultStatus.SUCCESSFUL,
        ]
        assert [r.attempts for r in (first, second, third)] == [1, 2, 3]

    def test_a_failing_job_does_not_stop_the_others(self) -> None:
        for task in (tasks.fail, tasks.leave, tasks.fail_async, tasks.do_nothing):
            task.enqueue()
        assert [result.status for result in drain()] == [TaskResultStatus.FAILED] * 3 + [TaskResultStatus.SUCCESSFUL]

    def test_a_keyboard_interrupt_stops_drain(self) -> None:
        tasks.be_interrupted.enqueue()
        with pytest.raises(KeyboardInterrupt):
            drain()

    def test_a_job_that_breaks_the_transaction_fails_and_the_test_goes_on(self) -> None:
        Group.objects.create(name="the test's")
        for task, *args in (
            (tasks.add_group_twice, "tea"),
            (tasks.break_a_transaction_of_its_own,),
            (tasks.break_a_transaction_and_be_silent,),
            (tasks.add_group, "milk"),
        ):
            task.enqueue(*args)
        failed, broken, silent, succeeded = drain()
        assert failed.errors[0].exception_class is IntegrityError
        assert broken.errors[0].exception_class is tasks.Trouble
        assert silent.return_value == "never mind"
        assert succeeded.status is TaskResultStatus.SUCCESSFUL
        assert set(Group.objects.values_list("name", flat=True)) == {"the test's", "milk"}

    def test_receivers_of_signals_may_ask_the_database_after_an_error(self) -> None:
        counts = []

        def count(**_: object) -> None:
            counts.append(Group.objects.count())

        task_finished.connect(count)
        try:
            tasks.add_group_twice.enqueue("tea")
            drain()
        finally:
            task_finished.disconnect(count)
        assert counts == [0]

    def test_a_durable_transaction_is_possible_as_in_a_worker(self) -> None:
        tasks.commit_durably.enqueue("tea")
        assert [result.status for result in drain()] == [TaskResultStatus.SUCCESSFUL]
        assert Group.objects.filter(name="tea").exists()

    def test_a_rollback_of_the_test_undoes_the_jobs(self) -> None:
        with transaction.atomic():
            tasks.add_group.enqueue("tea")
            drain()
            transaction.set_rollback(True)
        assert not Group.objects.exists()
        assert not Attempt.objects.exists()

    def test_raw_messages_are_left_alone(self) -> None:
        functions.enqueue(connection, functions.NewMessage(content="1"))
        assert drain() == []
        assert Message.objects.count() == 1

    def test_a_message_that_names_no_task_fails_with_an_error(self) -> None:
        functions.enqueue(
            connection,
            functions.NewMessage(content='{"args": [], "kwargs": {}}', task="tests.support.tasks.plain_function"),
        )
        with pytest.raises(UnknownTask, match="Declare it with @task"):
            drain()
        assert Attempt.objects.get().error_class == "django_pgqueue.exceptions.UnknownTask"

    def test_messages_held_by_another_worker_are_not_drained(self) -> None:
        tasks.do_nothing.enqueue()
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from pgqueue_message_dequeue(p_worker => 'another', p_tasks => true)")
        assert drain() == []

    def test_drain_takes_the_named_backend(self, settings: Settings) -> None:
        ours = {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": []}
        settings.TASKS = {"default": ours, "other": ours}
        tasks.echo.using(backend="other").enqueue()
        assert [result.backend for result in drain(backend="other")] == ["other"]


def fail() -> None:
    with clock(NOON):
        _ = 1 / 0


def break_the_transaction() -> None:
    with transaction.atomic(), clock(NOON), connection.cursor() as cursor:
        cursor.execute("select 1/0")


def make_django_give_the_transaction_up() -> None:
    with transaction.atomic(), clock(NOON), transaction.atomic(savepoint=False):
        _ = 1 / 0


@pytest.mark.django_db
class TestClock:
    def test_clock_stops_the_time_of_the_queue(self) -> None:
        with clock(NOON) as now:
            result = tasks.do_nothing.enqueue()
            assert result.enqueued_at == NOON
            now.advance(HOUR)
            drain()
            result.refresh()
            assert result.started_at == result.finished_at == result.last_attempted_at == NOON + HOUR
            now.move_to(NOON - HOUR)
            assert tasks.do_nothing.enqueue().enqueued_at == NOON - HOUR
            assert now.at == NOON - HOUR

    def test_clock_starts_at_the_present(self) -> None:
        before = functions.now(connection)
        with clock() as now:
            assert before <= now.at
        assert now.at <= functions.now(connection)

    def test_a_naive_time_is_in_the_current_time_zone(self) -> None:
        with clock(dt.datetime(2030, 6, 1, 12)):  # noqa: DTZ001
            assert tasks.do_nothing.enqueue().enqueued_at == NOON

    def test_clock_works_without_use_tz(self, settings: Settings) -> None:
        settings.USE_TZ = False
        with clock() as now:
            tasks.do_nothing.using(run_after=HOUR).enqueue()
            assert drain() == []
            now.advance(HOUR)
            assert names(drain()) == ["do_nothing"]

    def test_afterwards_the_time_is_that_of_the_database(self) -> None:
        with clock(NOON):
            assert clock_setting() != ""
        assert clock_setting() == ""

    @pytest.mark.parametrize("fail", [fail, break_the_transaction, make_django_give_the_transaction_up])
    def test_also_after_a_failure_whose_error_is_the_one_that_is_seen(self, fail: Callable[[], None]) -> None:
        with pytest.raises((ZeroDivisionError, DatabaseError), match="division by zero"):
            fail()
        assert clock_setting() == ""


@pytest.mark.django_db(transaction=True)
class TestWithCommits:
    def test_drain_commits_what_the_jobs_write(self, stranger: psycopg.Connection[Any]) -> None:
        tasks.add_group.enqueue("tea")
        tasks.add_group_twice.enqueue("milk")
        assert [result.status for result in drain()] == [TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED]
        # Without a transaction each write is its own, as in a worker.
        assert stranger.execute("select name from auth_group order by id").fetchall() == [("tea",), ("milk",)]
        assert stranger.execute("select status from pgqueue_attempt order by id").fetchall() == [
            ("succeeded",),
            ("failed",),
        ]

    def test_the_clock_is_that_of_one_session(self, stranger: psycopg.Connection[Any]) -> None:
        with clock(NOON):
            tasks.do_nothing.enqueue()
            theirs = stranger.execute("select pgqueue_clock(), created_at from pgqueue_message").fetchone()
            assert theirs is not None
            assert theirs[0] != NOON
            assert theirs[1] == NOON
        assert clock_setting() == ""

    def test_the_connection_may_be_closed_meanwhile(self) -> None:
        with clock(NOON):
            connection.close()
        assert clock_setting() == ""

    def test_the_clock_is_reset_after_an_error_outside_of_a_transaction(self) -> None:
        def fail() -> None:
            with clock(NOON):
                Group.objects.create(pk="no number")

        with pytest.raises(ValueError, match="no number"):
            fail()
        assert clock_setting() == ""


class InTestCase(TestCase):
    """Django's own classes: everything in one transaction …"""

    enqueued: AnyTaskResult

    @classmethod
    def setUpTestData(cls) -> None:
        cls.enqueued = tasks.add_group.enqueue("from the class")

    def test_the_class_s_job_is_ready_for_each_test(self) -> None:
        assert [result.id for result in drain()] == [self.enqueued.id]

    async def test_async(self) -> None:
        result = await tasks.add_group_async.aenqueue("tea")
        assert len(await adrain()) == 2
        await result.arefresh()
        assert result.return_value == (await Group.objects.aget(name="tea")).pk

    def test_a_clock_that_was_not_entered_is_not_moved(self) -> None:
        with pytest.raises(PgQueueError, match="with clock"):
            clock().advance(HOUR)

    async def test_the_call_without_await_names_the_one_with_it(self) -> None:
        for call in (drain, assert_not_enqueued):
            with pytest.raises(SynchronousOnlyOperation, match=rf"await a{call.__name__}\(\)"):
                call()

    async def test_async_clock(self) -> None:
        await adrain()
        async with clock(NOON) as now:
            result = await tasks.do_nothing_async.using(run_after=2 * HOUR).aenqueue()
            assert result.enqueued_at == NOON
            await now.aadvance(HOUR)
            assert await adrain(["default"], limit=5) == []
            await now.amove_to(NOON + 2 * HOUR)
            assert names(await adrain()) == ["do_nothing_async"]
        assert await sync_to_async(clock_setting)() == ""

    async def test_async_tests_must_use_the_async_variants(self) -> None:
        with pytest.raises(SynchronousOnlyOperation):
            drain()
        with pytest.raises(SynchronousOnlyOperation):
            clock().__enter__()


@pytest.mark.django_db
def test_jobs_run_beside_a_loop_that_somebody_left_in_the_thread_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Playwright's sync API does; its users set this variable."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    before, loop = connection.connection, asyncio.new_event_loop()
    asyncio._set_running_loop(loop)
    try:
        with transaction.atomic():
            tasks.add_group_async.enqueue("tea")
            tasks.add_group.enqueue("coffee")
            assert [result.status for result in drain()] == ["SUCCESSFUL"] * 2
            assert Group.objects.count() == 2, "Django has a connection of its own for a thread with a loop"
            assert asyncio.get_running_loop() is loop
            transaction.set_rollback(True)
        assert Group.objects.count() == 0
        connection.close()
    finally:
        asyncio._set_running_loop(None)
        loop.close()
    assert connection.connection is before


class InTransactionTestCase(TransactionTestCase):
    """… or committed and cleaned up afterwards."""

    async def test_async(self) -> None:
        await tasks.enqueue_next_async.aenqueue(2)
        assert names(await adrain()) == ["enqueue_next_async"] * 3
