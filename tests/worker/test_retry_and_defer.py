"""Retries after errors, retries that a task asks for, and waiting without an error."""

from __future__ import annotations

import datetime as dt
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import functions
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import Retry
from django_pgqueue.models import Attempt, Message
from django_pgqueue.tasks import Exponential, task
from django_pgqueue.testing import clock, drain
from django_pgqueue.worker.run.execution import FEW_ATTEMPTS
from tests.support.site import jobs
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import Settings

    from django_pgqueue.compat import AnyTaskResult
    from tests.support.fixtures.consumers import Consume
    from tests.support.site.jobs import Step

pytestmark = pytest.mark.django_db

DEFER, ERROR, RETRY = {"defer": 0}, {"raise": "OSError"}, {"retry": 0}
every_kind = pytest.mark.parametrize("follow", [jobs.follow, jobs.follow_async], ids=["plain", "async"])


def run(job: Any, *arguments: Any) -> AnyTaskResult:
    """The result when nothing of it is ready any more."""
    result: AnyTaskResult = job.enqueue(*arguments)
    drain()
    result.refresh()
    return result


def due_in_seconds(result: AnyTaskResult) -> float:
    message = Message.objects.get(pk=result.id)
    last = Attempt.objects.filter(message_id=message.pk).latest("id")
    seconds: float = (message.dequeue_at - last.finished_at).total_seconds()
    return seconds


@contextmanager
def declared_with(backoff: Any, task: Any = jobs.retry_without_saying_when) -> Iterator[None]:
    """As if the task had this backoff."""
    before = task.backoff
    object.__setattr__(task, "backoff", backoff)
    try:
        yield
    finally:
        object.__setattr__(task, "backoff", before)


def lines(result: AnyTaskResult) -> list[str]:
    """The last line of each error."""
    return [error.traceback.strip().rpartition("\n")[2] for error in result.errors]


class TestErrors:
    @every_kind
    def test_each_attempt_s_error_is_kept(self, follow: Any) -> None:
        result = run(follow.using(max_attempts=4), ERROR, {"raise": "KeyError"}, {"retry": 0})
        assert result.status == "SUCCESSFUL"
        assert result.return_value == [4, None]
        assert [error.exception_class_path for error in result.errors] == [
            "builtins.OSError",
            "builtins.KeyError",
            "django_pgqueue.exceptions.Retry",
        ]
        assert lines(result)[:2] == ["OSError: attempt 1", "KeyError: 'attempt 2'"]
        assert all("Traceback (most recent call last)" in error.traceback for error in result.errors)
        assert statuses(result) == ["retried", "retried", "retried", "succeeded"]

    @every_kind
    @pytest.mark.parametrize("last", [1, 2, 5])
    def test_a_task_has_exactly_max_attempts(self, follow: Any, last: int) -> None:
        result = run(follow.using(max_attempts=last), *[ERROR] * 9)
        assert (result.status, result.attempts) == ("FAILED", last)
        assert lines(result) == [f"OSError: attempt {n}" for n in range(1, last + 1)]
        assert statuses(result) == ["retried"] * (last - 1) + ["failed"]

    @every_kind
    def test_without_max_attempts_an_error_is_the_end(self, follow: Any) -> None:
        assert statuses(run(follow, ERROR)) == ["failed"]


class TestRetry:
    @every_kind
    @pytest.mark.parametrize(
        ("after", "seconds"), [(30, 30), (0.5, 0.5), (0, 0), (-5, 0), (1e9, 1e9)], ids=lambda value: f"{value:g}"
    )
    def test_a_retry_comes_back_at_its_time(self, follow: Any, after: float, seconds: float) -> None:
        with clock() as now:
            result = follow.enqueue({"retry": after, "state": {"page": 2}})
            drain(limit=1)
            assert due_in_seconds(result) == seconds
            now.advance(dt.timedelta(seconds=seconds))
            drain()
        result.refresh()
        assert result.return_value == [2, {"page": 2}]
        assert statuses(result) == ["retried", "succeeded"]

    @pytest.mark.parametrize("after", [30, 30.0, dt.timedelta(seconds=30)])
    def test_after_is_seconds_or_a_timedelta(self, after: Any) -> None:
        assert Retry(after=after).wait_seconds == 30

    @pytest.mark.parametrize("after", ["soon", [], dt.datetime(2030, 1, 1, tzinfo=dt.UTC)])
    def test_any_other_after_is_refused_by_the_constructor(self, after: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            Retry(after=after)

    def test_the_message_of_a_retry_is_the_error_message(self) -> None:
        assert str(Retry()) == "The task asked for another attempt."
        assert str(Retry("The bank is closed.", after=1)) == "The bank is closed."

    @every_kind
    @pytest.mark.parametrize(("max_attempts", "last"), [(None, 5), (1, 1), (3, 3), (7, 7)])
    def test_a_retry_counts_as_an_attempt_and_five_is_the_default(
        self, follow: Any, max_attempts: int | None, last: int
    ) -> None:
        result = run(follow.using(max_attempts=max_attempts), *[RETRY] * 9)
        assert statuses(result) == ["retried"] * (last - 1) + ["failed"]
        assert {error.exception_class_path for error in result.errors} == {"django_pgqueue.exceptions.Retry"}

    def test_without_max_attempts_another_error_is_still_the_end(self) -> None:
        assert statuses(run(jobs.follow, RETRY, ERROR)) == ["retried", "failed"]

    @pytest.mark.parametrize("number", [3, 7])
    def test_earlier_defers_do_not_count(self, number: int) -> None:
        result = run(jobs.follow, *[DEFER] * number, *[RETRY] * 4, {})
        assert statuses(result) == ["deferred"] * number + ["retried"] * 4 + ["succeeded"]
        assert statuses(run(jobs.follow, *[DEFER] * number, *[RETRY] * 5)) == (
            ["deferred"] * number + ["retried"] * 4 + ["failed"]
        )

    @pytest.mark.parametrize(
        ("backoff", "seconds"),
        [(None, 1), (Exponential(base=40), 40), (lambda exception, _: 2 * float(str(exception)), 15)],
        ids=["none", "exponential", "callable"],
    )
    @pytest.mark.parametrize("max_attempts", [None, 3])
    def test_a_retry_without_after_uses_the_backoff_of_the_task(
        self, backoff: Any, seconds: float, max_attempts: int | None
    ) -> None:
        with clock(), declared_with(backoff):
            result = jobs.retry_without_saying_when.using(max_attempts=max_attempts).enqueue()
            drain()
            assert due_in_seconds(result) == pytest.approx(seconds, rel=0.25)

    def test_a_backoff_that_gives_up_overrides_a_retry(self) -> None:
        with declared_with(lambda exception, _: None if isinstance(exception, Retry) else 0):
            assert statuses(run(jobs.retry_without_saying_when)) == ["failed"]

    def test_a_retry_with_after_does_not_call_the_backoff(self) -> None:
        with declared_with(lambda *_: pytest.fail("it was asked")):
            assert statuses(run(jobs.follow, RETRY)) == ["retried", "succeeded"]

    def test_retry_on_does_not_apply_to_a_retry(self) -> None:
        for each in (jobs.retry_only_os_errors, jobs.retry_all_but_bad_values):
            assert statuses(run(each, RETRY, {})) == ["retried", "succeeded"]


class TestInTaskGroups:
    """What the children of a task group ask for comes in an exception group."""

    @pytest.mark.parametrize(
        ("steps", "end", "state", "wait_seconds"),
        [
            ([{"defer": 30, "state": 1}], "deferred", 1, 30),
            ([{"retry": 30, "state": 1}], "retried", 1, 30),
            ([{"children": [{"children": [{"defer": 30, "state": 1}]}]}], "deferred", 1, 30),
            ([{"defer": 5, "state": 1}, {"defer": 30, "state": 2}, {"defer": 1, "state": 3}], "deferred", 2, 30),
            ([{"defer": 99, "state": 1}, {"retry": 30, "state": 2}], "retried", 2, 30),
            ([{"children": [{"retry": 5}]}, {"retry": 30, "state": 2}], "retried", 2, 30),
        ],
        ids=["defer", "retry", "nested", "the longest wait", "a retry before a defer", "the longest retry"],
    )
    def test_a_request_in_a_group_is_obeyed(self, steps: list[Step], end: str, state: Any, wait_seconds: float) -> None:
        with clock() as now:
            result = jobs.ask_from_children.enqueue(*steps)
            drain()
            assert statuses(result) == [end]
            assert due_in_seconds(result) == wait_seconds
            now.advance(dt.timedelta(seconds=wait_seconds))
            drain()
        result.refresh()
        assert result.return_value == [2, state]
        assert len(result.errors) == (end == "retried")

    def test_a_request_beside_another_error_is_an_error(self) -> None:
        result = run(jobs.ask_from_children, DEFER, ERROR)
        assert statuses(result) == ["failed"]
        assert result.errors[0].exception_class_path == "builtins.BaseExceptionGroup"


class TestLookingBack:
    @pytest.mark.parametrize("compare", [jobs.compare, jobs.compare_async], ids=["plain", "async"])
    @pytest.mark.parametrize("max_attempts", [None, 4])
    def test_the_context_has_the_same_errors_as_the_result(self, compare: Any, max_attempts: int | None) -> None:
        jobs.SEEN.clear()
        with clock():  # so that it began at the moment in which it was taken
            result = run(compare.using(max_attempts=max_attempts), DEFER, RETRY, DEFER, RETRY)
        assert statuses(result) == ["deferred", "retried", "deferred", "retried", "succeeded"]
        assert len(jobs.SEEN) == 5
        for equal, mine, theirs in jobs.SEEN:
            assert mine == theirs
            assert equal

    def test_reading_the_errors_costs_one_query_and_only_then(self) -> None:
        with CaptureQueriesContext(connection) as few:
            run(jobs.follow, DEFER, DEFER, DEFER)
        with CaptureQueriesContext(connection) as more:
            result = run(jobs.look_back, 3)
        assert result.return_value == [4, []]
        assert len(reads_of_the_history(more)) == len(reads_of_the_history(few)) + 1

    @pytest.mark.slow
    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("task", [jobs.look_back, jobs.look_back_async], ids=["plain", "async"])
    @pytest.mark.parametrize("defers", [3, FEW_ATTEMPTS + 2])
    def test_the_errors_are_there_in_a_worker(self, consume: Consume, task: Any, defers: int) -> None:
        consume()
        assert ended(task.enqueue(defers)).return_value == [defers + 1, []]


def reads_of_the_history(queries: CaptureQueriesContext) -> list[str]:
    return [query["sql"] for query in queries if 'FROM "pgqueue_attempt"' in query["sql"]]


class TestState:
    @every_kind
    def test_a_state_stays_until_it_is_replaced(self, follow: Any) -> None:
        result = run(
            follow.using(max_attempts=9),
            {"defer": 0, "state": {"page": 1, "é": [1.5, None]}},
            {"defer": 0},
            ERROR,
            RETRY,
        )
        assert result.return_value == [5, {"page": 1, "é": [1.5, None]}]

    @pytest.mark.parametrize("step", [DEFER, RETRY], ids=["defer", "retry"])
    @pytest.mark.parametrize("state", [{"n": 1}, [], {}, 0, False, "text", 1.5, "é🍵"], ids=repr)
    def test_a_state_is_any_json_value(self, step: dict[str, Any], state: Any) -> None:
        assert run(jobs.follow, {**step, "state": state}).return_value == [2, state]


class TestDefer:
    @every_kind
    def test_a_defer_ends_the_attempt_without_an_error(self, follow: Any) -> None:
        result = run(follow, DEFER, {})
        assert (result.status, result.errors, result.attempts) == ("SUCCESSFUL", [], 2)
        first, second = Attempt.objects.filter(message_id=result.id).order_by("id")
        assert (first.status, first.final, first.error_class, first.error_message) == ("deferred", False, None, None)
        assert (second.status, second.final) == ("succeeded", True)

    @pytest.mark.parametrize("seconds", [0, 0.25, 30, 86_400])
    def test_a_deferred_task_runs_again_after_its_seconds_and_not_before(self, seconds: float) -> None:
        with clock() as now:
            result = jobs.follow.enqueue({"defer": seconds})
            drain(limit=1)
            if seconds:
                now.advance(dt.timedelta(seconds=seconds, milliseconds=-1))
                assert drain() == []
                now.advance(dt.timedelta(milliseconds=1))
            assert [each.id for each in drain()] == [result.id]

    @pytest.mark.parametrize("max_attempts", [None, 5])
    def test_defers_do_not_lengthen_the_waits_after_errors(self, max_attempts: int | None) -> None:
        """A task that has looked six times waited for more than a minute after its first error."""
        with clock() as now, declared_with(Exponential(base=10), jobs.follow):
            result = jobs.follow.using(max_attempts=max_attempts).enqueue(
                *[DEFER] * 6, {"retry": None}, DEFER, {"retry": None}
            )
            drain()
            assert due_in_seconds(result) == pytest.approx(10, rel=0.25)
            now.advance(dt.timedelta(seconds=13))
            drain()
            assert due_in_seconds(result) == pytest.approx(20, rel=0.25)

    def test_except_exception_does_not_swallow_a_defer(self) -> None:
        result = run(jobs.defer_and_catch_all)
        assert result.return_value == "came back"

    def test_a_defer_rolls_back_the_atomic_block_it_leaves(self) -> None:
        assert run(jobs.defer_in_a_with_block, "tea").return_value == "came back"
        assert not Group.objects.exists()

    def test_without_max_attempts_the_number_of_the_caller_excludes_defers(self) -> None:
        """In SQL, where a consumer in another language counts on it."""
        functions.enqueue(connection, functions.NewMessage(content="{}", max_attempts=None))
        answers = []
        for error in [None] * 4 + [functions.Error(message="no network")] * 3:
            [held] = functions.message_dequeue(connection)
            answers.append(functions.message_defer(connection, held, error=error, max_attempts=3))
        assert answers == ["deferred"] * 4 + ["retried", "retried", "failed"]


class TestWhichErrors:
    def test_retry_on_names_those_that_are_tried_again(self) -> None:
        steps = [ERROR, {"raise": "ConnectionError"}, {"raise": "ValueError"}]
        assert statuses(run(jobs.retry_only_os_errors, *steps)) == ["retried", "retried", "failed"]

    def test_no_retry_on_names_those_that_are_not(self) -> None:
        steps = [ERROR, {"raise": "TypeError"}, {"raise": "KeyError"}]
        assert statuses(run(jobs.retry_all_but_bad_values, *steps)) == ["retried", "retried", "failed"]

    def test_no_retry_on_overrides_retry_on(self) -> None:
        steps = [ERROR, {"raise": "FileNotFoundError"}]
        assert statuses(run(jobs.retry_only_some_os_errors, *steps)) == ["retried", "failed"]

    @pytest.mark.parametrize("job", [jobs.return_an_object, jobs.return_what_is_no_json])
    def test_a_return_value_that_cannot_be_stored_is_no_reason_to_repeat_the_effects(self, job: Any) -> None:
        result = job.using(max_attempts=3).enqueue("object")
        drain()
        assert statuses(result) == ["failed"]

    def test_retry_on_may_take_max_attempts_from_the_backend(self, settings: Settings) -> None:
        backend = settings.TASKS["default"]
        settings.TASKS = {"default": {**backend, "OPTIONS": {"MAX_ATTEMPTS": 3}}}
        declared = task(retry_on=(OSError,))(jobs.do)
        assert declared.retry_on == (OSError,)


NO_TUPLES = [OSError, [OSError], {OSError}, "OSError", ("OSError",), (OSError, None), (OSError("x"),), (int,), 5, True]
REFUSED: list[tuple[str, str, list[Any]]] = [
    ("retry_on", "retry_on must be a tuple of exception classes, such as", NO_TUPLES),
    ("no_retry_on", "no_retry_on must be a tuple of exception classes, such as", [*NO_TUPLES, None]),
    ("max_attempts", "from 1 to 1,000,000, or None for no retries", [0, -1, 1.0, "3", True, 1_000_001]),
    ("backoff", "For fixed waits: backoff=lambda", [30, "exponential", [1, 2, 3]]),
]


class TestWrongValues:
    @pytest.mark.parametrize(("name", "said", "values"), REFUSED, ids=[name for name, *_ in REFUSED])
    def test_an_option_is_refused_with_its_value(self, name: str, said: str, values: list[Any]) -> None:
        for wrong in values:
            with pytest.raises(InvalidTask, match=re.escape(said)) as refused:
                task(**{"max_attempts": 2, name: wrong})(jobs.do)
            assert f"not {wrong!r}" in str(refused.value)

    def test_using_refuses_wrong_max_attempts_too(self) -> None:
        with pytest.raises(InvalidTask, match="from 1 to 1,000,000, or None for no retries, not 0"):
            jobs.follow.using(max_attempts=0)

    def test_retry_on_without_max_attempts_is_refused(self) -> None:
        with pytest.raises(InvalidTask, match=r"retry_on without max_attempts never retries.*max_attempts=5"):
            task(retry_on=(OSError,))(jobs.do)

    @pytest.mark.parametrize("after", ["soon", None, []])
    def test_defer_wants_a_number_or_a_timedelta(self, after: Any) -> None:
        result = run(jobs.follow.using(max_attempts=1), {"defer": after})
        assert result.status == "FAILED"
        assert result.errors[0].exception_class_path in ("builtins.TypeError", "builtins.ValueError")


@pytest.mark.django_db(transaction=True)
class TestInAWorker:
    @pytest.mark.slow
    def test_retries_defers_and_their_state_are_the_same(self, consume: Consume) -> None:
        steps: list[dict[str, Any]] = [
            {"defer": 0.01, "state": {"n": 1}},
            ERROR,
            {"retry": 0.01},
            {"retry": 0, "state": {"n": 2}},
            DEFER,
        ]
        results = [follow.using(max_attempts=9).enqueue(*steps) for follow in (jobs.follow, jobs.follow_async)]
        consume()
        for result in map(ended, results):
            assert result.return_value == [6, {"n": 2}]
            assert statuses(result) == ["deferred", "retried", "retried", "retried", "deferred", "succeeded"]
            assert len(result.errors) == 3

    def test_a_task_that_defers_a_hundred_times_lets_others_run(self, consume: Consume) -> None:
        patient = jobs.follow.using(max_attempts=2).enqueue(*[DEFER] * 100, ERROR, {})
        others = [jobs.follow.enqueue() for _ in range(20)]
        consume(threads=1)
        assert ended(patient).return_value == [102, None]
        assert {ended(other).status for other in others} == {"SUCCESSFUL"}
        done = list(Attempt.objects.filter(final=True).order_by("id").values_list("message_id", flat=True))
        assert done[-1] == int(patient.id)

    @every_kind
    def test_an_invalid_defer_costs_no_slot(self, consume: Consume, follow: Any) -> None:
        bad = [follow.enqueue({"defer": "soon"}), follow.enqueue({"defer": []})]
        endless = follow.enqueue({"defer": 1e300})
        consume(threads=1)
        assert [ended(result).status for result in bad] == ["FAILED", "FAILED"]
        wait_until(lambda: statuses(endless) == ["deferred"], "it waits for ever")
        assert ended(follow.enqueue()).status == "SUCCESSFUL"
