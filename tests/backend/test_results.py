"""Results: what Django's documentation says of ``TaskResult``, ``TaskError`` and ``TaskContext``."""

from __future__ import annotations

import dataclasses
import datetime as dt
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.utils import timezone

from django_pgqueue import testing
from django_pgqueue.compat import (
    AnyTask,
    AnyTaskResult,
    InvalidTask,
    TaskError,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
)
from django_pgqueue.exceptions import UnknownTask
from django_pgqueue.functions import Error, NewMessage, enqueue, message_cancel, message_defer, message_dequeue
from django_pgqueue.models import Message
from tests.support import tasks
from tests.support.django_tasks_api import default_task_backend
from tests.support.fixtures.backend import no_queries
from tests.support.site.receivers import listening
from tests.support.waiting import wait_until
from tests.support.watching import ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_django.fixtures import Settings

    from tests.support.fixtures.consumers import Consume

pytestmark = pytest.mark.django_db

OURS = "django_pgqueue.backend.PgQueueBackend"
HOUR = dt.timedelta(hours=1)


def drained(task: AnyTask, *args: Any, **kwargs: Any) -> AnyTaskResult:
    """The result of a task after it has run, as ``refresh`` sees it."""
    result = task.enqueue(*args, **kwargs)
    testing.drain()
    result.refresh()
    return result


GET_RESULT: dict[str, Callable[[Any], AnyTaskResult]] = {
    "task": tasks.do_nothing.get_result,
    "task async": async_to_sync(tasks.do_nothing.aget_result),
    "backend": default_task_backend.get_result,
    "backend async": async_to_sync(default_task_backend.aget_result),
}


MALFORMED: list[Any] = [
    *[None, True, 1.0, b"1", [], "", " 1", "1 ", "1\n", "\x00", "\ud800", "\uff19", "\u0663", "'; drop table"],
    *["abc", "-1", "+1", "1.0", "1e3", "01", "0", "0x1", "1_000", "5b4f9ac8-9f0a-4d6c-8a5e-6d3c5d2f1f6a"],
    *(str(2**63), *("9" * digits for digits in (19, 20, 64, 5000))),
]


@pytest.mark.parametrize("result_id", MALFORMED, ids=lambda value: ascii(value)[:20])
def test_a_malformed_id_does_not_exist_and_sends_no_query(result_id: Any) -> None:
    with no_queries(), pytest.raises(TaskResultDoesNotExist, match="ids are whole numbers"):
        tasks.do_nothing.get_result(result_id)


@pytest.mark.parametrize("get", GET_RESULT.values(), ids=GET_RESULT.keys())
class TestGetResult:
    def test_get_result_returns_an_equal_result(self, get: Any) -> None:
        result = tasks.do_nothing.enqueue(1, two=3)
        assert get(result.id) == result
        assert get(result.id) is not result

    def test_a_result_that_was_rolled_back_does_not_exist(self, get: Any) -> None:
        with transaction.atomic():
            result = tasks.do_nothing.enqueue()
            transaction.set_rollback(True)
        with pytest.raises(TaskResultDoesNotExist, match=f"no task result with the id '{result.id}'"):
            get(result.id)

    def test_a_raw_message_is_no_result(self, get: Any) -> None:
        waiting = enqueue(connection, NewMessage(content="1")).id
        ended = enqueue(connection, NewMessage(content="1")).id
        message_cancel(connection, [ended])
        for result_id in (waiting, ended, 2**63 - 1):
            with pytest.raises(TaskResultDoesNotExist):
                get(str(result_id))


class TestMismatch:
    @pytest.mark.parametrize("run", [False, True], ids=["waiting", "finished"])
    def test_the_result_of_another_task_is_a_mismatch(self, *, run: bool) -> None:
        result = tasks.echo.enqueue()
        if run:
            testing.drain()
        with pytest.raises(TaskResultMismatch, match=r"Task does not match \(received 'tests\.support\.tasks\.echo'\)"):
            tasks.do_nothing.get_result(result.id)
        with pytest.raises(TaskResultMismatch, match="Task does not match"):
            async_to_sync(tasks.do_nothing.aget_result)(result.id)
        assert default_task_backend.get_result(result.id).task == tasks.echo

    def test_a_task_with_other_values_is_the_same_task(self) -> None:
        result = tasks.do_nothing.using(priority=5, queue_name="other").enqueue()
        assert tasks.do_nothing.get_result(result.id) == result


class TestReloaded:
    @pytest.mark.parametrize(
        "task",
        [
            tasks.do_nothing,
            tasks.do_nothing_async,
            tasks.send,
            tasks.fail_thrice,
            tasks.describe,
            tasks.do_nothing.using(priority=-100, queue_name="é 🍵", max_attempts=7),
            tasks.fail_thrice.using(max_attempts=1),
            tasks.do_nothing.using(run_after=dt.timedelta(days=365, microseconds=123_457), priority=3),
        ],
        ids=repr,
    )
    def test_a_waiting_result_equals_the_original(self, task: AnyTask) -> None:
        result = task.enqueue("word", n=[1, {"a": None}])
        reloaded = task.get_result(result.id)
        assert reloaded == result
        assert dataclasses.asdict(reloaded) == dataclasses.asdict(result)

    def test_microseconds_are_kept(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select now()")
            now = cursor.fetchone()[0]
        result = tasks.do_nothing.enqueue()
        assert result.enqueued_at == tasks.do_nothing.get_result(result.id).enqueued_at == now

    @pytest.mark.parametrize("task", [tasks.echo, tasks.echo_atomically, tasks.fail, tasks.fail_thrice], ids=repr)
    def test_a_finished_result_equals_the_one_that_the_signal_brought(self, task: AnyTask) -> None:
        brought: list[AnyTaskResult] = []
        with listening("finished", lambda task_result, **_: brought.append(task_result)):
            result = task.enqueue()
            testing.drain()
        assert task.get_result(result.id) == brought[0]
        result.refresh()
        assert result == brought[0]

    def test_the_options_of_the_backend_do_not_become_the_task_s(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"MAX_ATTEMPTS": 4}}}
        result = tasks.do_nothing.enqueue()
        assert tasks.do_nothing.get_result(result.id) == result

    def test_a_message_that_was_deferred_has_the_task_that_was_enqueued(self) -> None:
        with testing.clock() as now:
            for task in (tasks.defer_with, tasks.retry_with):
                result = task.using(max_attempts=4).enqueue("None", 3600)
                for _ in range(3):
                    testing.drain()
                    result.refresh()
                    assert task.get_result(result.id) == result
                    now.advance(HOUR)

    @pytest.mark.parametrize(
        "changes",
        [{"unique_key": "k"}, {"unique_key": True, "on_conflict": "replace"}, {"after": [1]}, {"channel": "acme"}],
        ids=lambda changes: next(iter(changes)),
    )
    def test_how_a_message_was_enqueued_is_no_part_of_what_it_is(self, changes: dict[str, Any]) -> None:
        result = tasks.echo.using(**changes).enqueue(1)
        assert tasks.echo.get_result(result.id) == result

    def test_results_can_be_pickled(self) -> None:
        result = drained(tasks.fail_thrice)
        assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301

    @pytest.mark.parametrize("run", [False, True], ids=["waiting", "finished"])
    def test_a_queue_that_is_not_in_the_settings_any_more_takes_nothing_away(
        self, settings: Settings, *, run: bool
    ) -> None:
        result = tasks.echo.using(queue_name="old").enqueue(1)
        settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": ["new"]}}
        with pytest.raises(InvalidTask):
            tasks.echo.using(queue_name="old")
        if run:
            settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": ["new", "default", "mail"]}}
            assert [drained.status for drained in testing.drain()] == [TaskResultStatus.SUCCESSFUL]
        reloaded = tasks.echo.get_result(result.id)
        assert (reloaded.task.queue_name, reloaded.args) == ("old", [1])

    def test_a_missing_task_is_named_in_the_error(self) -> None:
        message_id = enqueue(
            connection, NewMessage(content='{"args": [], "kwargs": {}}', task="tests.support.tasks.gone")
        ).id
        with pytest.raises(UnknownTask, match=r"tests\.support\.tasks has no 'gone'"):
            default_task_backend.get_result(str(message_id))

    @pytest.mark.parametrize("content", ["null", "1", "[]", "{}", '{"args": 1, "kwargs": []}', '{"args": []}'])
    def test_a_row_that_was_written_by_hand_fails_with_the_reason(self, content: str) -> None:
        message_id = enqueue(connection, NewMessage(content=content, task="tests.support.tasks.do_nothing")).id
        waiting = default_task_backend.get_result(str(message_id))
        assert (waiting.status, waiting.args, waiting.kwargs) == (TaskResultStatus.READY, [], {})
        [failed] = testing.drain()
        assert failed.status is TaskResultStatus.FAILED
        assert "is not the call of a task" in failed.errors[0].traceback
        assert f"not {content}." in failed.errors[0].traceback


@pytest.mark.parametrize(
    "refresh",
    [lambda result: result.refresh(), lambda result: async_to_sync(result.arefresh)()],
    ids=["refresh", "arefresh"],
)
class TestRefresh:
    def test_refresh_of_an_unchanged_result_changes_nothing(self, refresh: Callable[[AnyTaskResult], None]) -> None:
        result = tasks.do_nothing.enqueue(1)
        before = dataclasses.asdict(result)
        refresh(result)
        assert dataclasses.asdict(result) == before

    def test_a_result_is_as_old_as_it_is_until_it_is_refreshed(self, refresh: Callable[[AnyTaskResult], None]) -> None:
        result = tasks.do_nothing.enqueue()
        testing.drain()
        before = result.is_finished
        refresh(result)
        assert (before, result.is_finished) == (False, True)
        assert result == tasks.do_nothing.get_result(result.id)


class TestStatus:
    def test_a_message_that_a_worker_holds_is_running(self) -> None:
        result = tasks.do_nothing.enqueue()
        [held] = message_dequeue(connection, worker="me", tasks=True)
        result.refresh()
        assert result.status is TaskResultStatus.RUNNING
        assert result.is_finished is False
        assert result.started_at == result.last_attempted_at == held.locked_at
        assert (result.worker_ids, result.attempts, result.finished_at) == (["me"], 1, None)
        with pytest.raises(ValueError, match="Task has not finished yet"):
            _ = result.return_value

    def test_success(self) -> None:
        result = drained(tasks.echo, 1, two=2)
        assert result.status is TaskResultStatus.SUCCESSFUL
        assert result.is_finished is True
        assert result.return_value == {"args": [1], "kwargs": {"two": 2}}
        assert None not in (result.enqueued_at, result.started_at, result.finished_at)
        assert result.enqueued_at <= result.started_at <= result.finished_at  # type: ignore[operator]
        assert result.last_attempted_at == result.started_at
        assert (result.errors, result.attempts, result.worker_ids) == ([], 1, [testing.WORKER])

    @pytest.mark.parametrize("task", [tasks.fail, tasks.fail_async], ids=["plain", "async"])
    def test_failure(self, task: AnyTask) -> None:
        result = drained(task)
        assert result.status is TaskResultStatus.FAILED
        assert result.is_finished is True
        with pytest.raises(ValueError, match="Task failed"):
            _ = result.return_value
        assert result.enqueued_at <= result.started_at <= result.finished_at  # type: ignore[operator]
        assert (result.attempts, len(result.errors)) == (1, 1)

    def test_a_message_that_waits_for_its_retry_is_ready(self) -> None:
        result = drained(tasks.fail_until_told_otherwise)
        assert result.status is TaskResultStatus.READY
        assert (result.attempts, len(result.errors), result.finished_at) == (1, 1, None)
        assert result.started_at == result.last_attempted_at is not None

    def test_after_retries_the_times_are_those_of_the_first_and_the_last_attempt(self) -> None:
        with testing.clock() as now:
            first = now.at
            result = tasks.fail_until_told_otherwise.enqueue()
            for _ in range(5):
                testing.drain()
                now.advance(HOUR)
            result.refresh()
        in_ms = [round((moment - first) / HOUR) for moment in (result.started_at, result.last_attempted_at) if moment]
        assert in_ms == [0, 4]
        assert result.finished_at == result.last_attempted_at
        assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 5, 5)

    def test_a_lost_attempt_is_an_attempt_with_an_error(self) -> None:
        with testing.clock() as now:
            result = tasks.echo.enqueue()
            message_dequeue(connection, worker="gone", tasks=True)
            now.advance(HOUR)
            testing.drain()
        result.refresh()
        assert result.status is TaskResultStatus.SUCCESSFUL
        assert result.worker_ids == ["gone", testing.WORKER]
        assert [error.exception_class.__name__ for error in result.errors] == ["AttemptLost"]
        assert "the lock of worker gone ran out" in result.errors[0].traceback


class TestErrors:
    def test_a_class_in_another_one_is_found(self) -> None:
        [error] = drained(
            tasks.give, f"__import__({Group.__module__!r}, fromlist=['models']).Group.objects.get()"
        ).errors
        assert error.exception_class is Group.DoesNotExist

    def test_the_class_and_the_traceback_are_kept(self) -> None:
        [error] = drained(tasks.fail, "it is raining").errors
        assert isinstance(error, TaskError)
        assert error.exception_class is tasks.Trouble
        assert error.exception_class_path == "tests.support.tasks.Trouble"
        plain = TaskError(exception_class_path=error.exception_class_path, traceback=error.traceback)
        assert error == plain
        assert {plain, error} == {error}
        assert error != TaskError(exception_class_path="builtins.ValueError", traceback=error.traceback)
        assert error.traceback.startswith("Traceback (most recent call last):")
        assert error.traceback.endswith("Trouble: it is raining\n")
        assert "tests/support/tasks.py" in error.traceback


class TestReturnValue:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("None", None),
            ("(1, (2,))", [1, [2]]),
            ("{'a': (b'tea',)}", {"a": ["tea"]}),
            ("range(3)", [0, 1, 2]),
            ("True", True),
            ("1.5", 1.5),
            ("2**70", 2**70),
            ("''", ""),
            ("[]", []),
            ("0", 0),
            ("False", False),
            ("'null'", "null"),
            ("{'': None}", {"": None}),
        ],
    )
    def test_the_return_value_becomes_json_as_in_django(self, expression: str, value: Any) -> None:
        result = drained(tasks.give, expression)
        assert result.return_value == value
        assert type(result.return_value) is type(value)
        assert tasks.give.get_result(result.id).return_value == value

    @pytest.mark.parametrize(
        ("expression", "error"),
        [
            ("object()", TypeError),
            ("{1, 2}", TypeError),
            ("ValueError()", TypeError),
            ("__import__('datetime').datetime.now()", TypeError),
            (r"b'\xff'", ValueError),
        ],
    )
    def test_a_value_that_django_refuses_fails_the_task_with_django_s_error(self, expression: str, error: Any) -> None:
        result = drained(tasks.give, expression)
        assert result.status is TaskResultStatus.FAILED
        assert result.errors[0].exception_class is error
        assert "Unsupported " in result.errors[0].traceback
        assert result.errors[0].traceback.count("Traceback (most recent call last)") == 1, "no steps on the way to it"
        last_line = result.errors[0].traceback.rstrip().splitlines()[-1]
        assert "the task's return value" in last_line, "the text of the error names what cannot be stored"

    @pytest.mark.parametrize(
        "expression",
        ["float('nan')", "[float('inf')]", r"'a\x00b'", r"'\ud800'", "{1: 2}", "'x' * 2_000_000", "10**5000"],
    )
    def test_a_return_value_that_cannot_be_stored_fails_the_task(self, expression: str) -> None:
        result = drained(tasks.give, expression)
        assert result.status is TaskResultStatus.FAILED
        assert issubclass(result.errors[0].exception_class, ValueError)
        assert "the task's return value" in result.errors[0].traceback
        assert not Message.objects.exists()


class TestContext:
    def test_async_tasks_take_the_context_too(self) -> None:
        result = drained(tasks.describe_async)
        assert result.return_value == [1, result.id]

    def test_the_task_in_it_is_the_one_that_was_enqueued(self) -> None:
        seen: list[Any] = []
        task = tasks.do_nothing.using(priority=9, queue_name="mail", run_after=-HOUR, max_attempts=2)
        with listening("started", lambda task_result, **_: seen.append(task_result.task)):
            task.enqueue()
            testing.drain()
        assert seen == [task]


class TestState:
    @pytest.mark.parametrize("task", [tasks.retry_with, tasks.defer_with], ids=["retry", "defer"])
    @pytest.mark.parametrize("expression", ["object()", "float('nan')", "'x' * 2_000_000"])
    def test_a_state_that_cannot_be_stored_fails_the_attempt(self, task: AnyTask, expression: str) -> None:
        result = drained(task, expression)
        assert (result.status, len(result.errors)) == (TaskResultStatus.FAILED, 1)
        assert issubclass(result.errors[0].exception_class, ValueError)
        assert "state" in result.errors[0].traceback

    @pytest.mark.parametrize("task", [tasks.retry_with, tasks.defer_with], ids=["retry", "defer"])
    def test_a_deferred_message_may_wait_for_ever(self, task: AnyTask) -> None:
        result = drained(task, "None", after=1e300)
        assert result.status is TaskResultStatus.READY
        assert testing.drain() == []


class TestWithoutUseTz:
    @pytest.fixture(autouse=True)
    def kathmandu(self, settings: Settings) -> None:
        settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Kathmandu"

    def test_times_are_naive(self) -> None:
        result = drained(tasks.echo)
        for moment in (result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at):
            assert moment is not None
            assert timezone.is_naive(moment)
        assert tasks.echo.get_result(result.id) == result

    @pytest.mark.django_db(transaction=True)
    def test_a_worker_which_has_a_connection_of_its_own_shows_the_same_times(self, consume: Consume) -> None:
        brought: list[AnyTaskResult] = []
        with listening("finished", lambda task_result, **_: brought.append(task_result)):
            result = tasks.succeed_at_third.enqueue()
            consume(burst=True)
            wait_until(lambda: brought, "its end is heard of")
            ended(result)  # the end is recorded after its receivers
        assert brought == [result]
        assert result.enqueued_at is not None
        assert abs(result.enqueued_at - timezone.now()) < dt.timedelta(minutes=5)


def test_the_result_of_a_waiting_job_locks_no_day_from_before_it() -> None:
    """The locks would last until the caller's transaction ends, and the server has no room for many of them."""
    result = tasks.do_nothing.enqueue()

    def locks(cursor: Any) -> int:
        cursor.execute("""
            select count(*) from pg_locks l join pg_index i on i.indexrelid = l.relation
            where l.pid = pg_backend_pid() and i.indrelid = 'pgqueue_attempt_20200203'::regclass
              and l.mode = 'AccessShareLock'
        """)
        [count] = cursor.fetchone()
        return int(count)

    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_attempt_partition('2020-02-03')")
        before = locks(cursor)
        result.refresh()
        assert locks(cursor) == before
        Message.objects.all().delete()
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()
        assert locks(cursor) > before, "the whole history is searched for a message that is not in the queue"


def test_errors_from_before_a_debounce_with_an_expiry_stay_in_the_result() -> None:
    """Such an enqueue gives a message that waits for its retry a later time."""
    result = tasks.fail_thrice.enqueue()
    [message] = message_dequeue(connection, queues=None, limit=1, lock_ms=60_000, worker="me", tasks=True)
    error = Error(error_class="builtins.OSError", message="it is raining")
    assert message_defer(connection, message, error=error, delay_ms=60_000, max_attempts=3) == "retried"
    Message.objects.update(created_at=timezone.now() + dt.timedelta(days=3))
    result.refresh()
    assert len(result.errors) == len(result.worker_ids) == 1


@pytest.mark.parametrize(
    "headers", ['{"run_after": 5}', '{"run_after": "soon"}', '{"delay_us": 1e30}', "5", '["run_after"]']
)
def test_a_job_with_the_headers_of_another_program_runs_and_has_a_result(headers: str) -> None:
    message = NewMessage(content='{"args": [], "kwargs": {}}', task=tasks.do_nothing.module_path, headers=headers)
    result = tasks.do_nothing.get_result(str(enqueue(connection, message).id))
    testing.drain()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL, result.errors
    assert getattr(result.task, "run_after", None) is None


def test_an_error_of_another_language_is_in_the_result() -> None:
    result = tasks.do_nothing.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("""
            select pgqueue_message_fail(id, attempt, p_error => 'TypeError: order is undefined')
            from pgqueue_message_dequeue(p_tasks => true)
        """)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    [error] = result.errors
    assert (error.exception_class, error.traceback) == (Exception, "TypeError: order is undefined")
