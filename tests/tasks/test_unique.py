"""At most one message for each key."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue.backend import Call, bulk, enqueue_many
from django_pgqueue.compat import InvalidTask
from django_pgqueue.control import cancel
from django_pgqueue.exceptions import DuplicateMessage
from django_pgqueue.functions import message_dequeue
from django_pgqueue.models import Message
from django_pgqueue.tasks import task
from django_pgqueue.testing import clock, drain
from tests.support.fixtures.backend import no_queries
from tests.support.sessions import concurrently
from tests.support.site import jobs
from tests.support.waiting import wait_until
from tests.support.watching import statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_pgqueue.compat import AnyTaskResult
    from tests.support.fixtures.workers import Session

pytestmark = pytest.mark.django_db


def row(result: AnyTaskResult) -> Message:
    return Message.objects.get(pk=result.id)


def run(job: Any, *arguments: Any) -> AnyTaskResult:
    """A message of the job that a worker holds."""
    result: AnyTaskResult = job.enqueue(*arguments)
    assert [held.id for held in message_dequeue(connection, worker="me", tasks=True)] == [int(result.id)]
    return result


def waiting(session: Session) -> bool:
    """Tells whether a transaction waits for another one."""
    return bool(
        session.rows("""
            select pid from pg_stat_activity
            where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0
        """)
    )


class TestKey:
    def test_true_allows_one_message_for_the_same_arguments(self) -> None:
        job = jobs.once_for_the_same_call
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
            ((), {}),
            ((1,), {}),
            (("1",), {}),
            ((), {"a": 1}),
            ((), {"a": None}),
            (([1, 2],), {}),
            ((1, 2), {}),
            (({"a": 1, "b": 2},), {}),
        ]
        first = [job.enqueue(*args, **kwargs).id for args, kwargs in calls]
        assert len(set(first)) == len(calls)
        assert [job.enqueue(*args, **kwargs).id for args, kwargs in calls] == first

    def test_arguments_are_compared_as_they_are_stored(self) -> None:
        job = jobs.once_for_the_same_call
        assert job.enqueue((1, 2), b"tea").id == job.enqueue([1, 2], "tea").id
        assert job.enqueue({"b": 1, "a": 2}).id == job.enqueue({"a": 2, "b": 1}).id
        assert job.enqueue(a=1, b=2).id == job.enqueue(b=2, a=1).id

    def test_a_name_is_as_good_as_a_place(self) -> None:
        job = jobs.once_for_the_same_order
        first = job.enqueue(7).id
        assert job.enqueue(order_id=7).id == first
        enqueue_many(job, [Call(kwargs={"order_id": 7})])
        assert Message.objects.count() == 1
        again = job.enqueue(7, paper="A4").id
        assert job.enqueue(paper="A4", order_id=7).id == again != first
        assert job.enqueue(7, copies=2, paper="A4").id not in {first, again}

    def test_the_key_of_a_call_without_names_is_that_of_0_1_0(self) -> None:
        call = json.dumps({"args": [7], "kwargs": {}}, sort_keys=True)
        path = "tests.support.site.jobs.once_for_the_same_order"
        result = jobs.once_for_the_same_order.enqueue(order_id=7)
        assert row(result).unique_key == f"{path}:{hashlib.sha256(call.encode()).hexdigest()}"

    def test_a_callable_makes_the_key_of_the_arguments(self) -> None:
        first = jobs.once_an_order.enqueue(1, "late")
        assert jobs.once_an_order.enqueue(1, reason="lost").id == first.id
        assert jobs.once_an_order.enqueue(order_id=1).id == first.id
        assert jobs.once_an_order.enqueue(2).id != first.id

    def test_the_context_is_no_part_of_the_key(self) -> None:
        declared = task(takes_context=True, unique_key=lambda *args: "-".join(args))(jobs.do)
        assert declared.unique_key("a", "b") == "a-b"  # type: ignore[operator, misc]

    def test_two_tasks_never_share_a_key(self) -> None:
        keys = {row(job.using(unique_key="k").enqueue()).unique_key for job in (jobs.once, jobs.follow)}
        assert keys == {"tests.support.site.jobs.once:k", "tests.support.site.jobs.follow:k"}

    def test_using_may_set_the_key(self) -> None:
        once = jobs.follow.using(unique_key="k")
        assert once.enqueue({"defer": 0}).id == once.enqueue().id != jobs.follow.enqueue().id


class TestOnConflict:
    def test_keep_returns_the_waiting_message_and_leaves_it_as_it_is(self) -> None:
        first = jobs.once.using(priority=5).enqueue(1)
        before = Message.objects.values().get()
        second = jobs.once.using(priority=9, run_after=dt.timedelta(hours=1)).enqueue(2)
        assert second == first
        assert (second.args, second.task.priority) == ([1], 5)
        assert Message.objects.values().get() == before

    def test_replace_gives_the_message_the_new_call(self) -> None:
        first = jobs.once.enqueue(1)
        second = jobs.once.using(on_conflict="replace", priority=9, queue_name="mail", max_attempts=4).enqueue(2)
        assert (second.id, second.args, second.task.priority) == (first.id, [2], 9)
        message = row(first)
        assert (message.priority, message.queue, message.max_attempts) == (9, "mail", 4)
        assert [result.return_value for result in drain()] == [[2]]

    def test_debounce_postpones_the_message_at_each_call(self) -> None:
        once = jobs.once.using(on_conflict="debounce", run_after=dt.timedelta(minutes=1))
        with clock() as now:
            first = once.enqueue(0)
            for n in range(1, 4):
                now.advance(dt.timedelta(seconds=59))
                assert drain() == []
                assert once.enqueue(n).id == first.id
            now.advance(dt.timedelta(seconds=60))
            assert [result.return_value for result in drain()] == [[0]]

    def test_raise_names_the_other_message_and_leaves_the_transaction_usable(self) -> None:
        once = jobs.once.using(on_conflict="raise")
        first = once.enqueue()
        with pytest.raises(
            DuplicateMessage, match=rf"message {first.id} holds its unique key.*on_conflict='keep'"
        ) as e:
            once.enqueue()
        assert e.value.existing_id == int(first.id)
        jobs.follow.enqueue()
        assert Message.objects.count() == 2


class TestUntil:
    def test_until_started_the_next_one_may_wait_while_it_runs_and_retries(self) -> None:
        first = jobs.look_again.enqueue({"raise": "OSError"}, {"defer": 0})
        drain(limit=1)
        second = jobs.look_again.enqueue()
        assert second.id != first.id
        assert jobs.look_again.enqueue().id == second.id
        assert {result.id for result in drain()} == {first.id, second.id}
        assert (statuses(first), statuses(second)) == (["retried", "deferred", "succeeded"], ["succeeded"])

    def test_a_message_that_runs_is_left_alone_and_its_key_is_not_free(self) -> None:
        first = run(jobs.once, 1)
        for on_conflict in ("keep", "replace", "debounce"):
            again = jobs.once.using(on_conflict=on_conflict, priority=7).enqueue(2)
            assert (again.id, again.status, again.args) == (first.id, "RUNNING", [1])
        with pytest.raises(DuplicateMessage):
            jobs.once.using(on_conflict="raise").enqueue(2)
        assert row(first).priority == 0

    def test_a_message_asked_to_stop_does_not_replace_a_new_call(self) -> None:
        first = run(jobs.once, 1)
        assert cancel(first) == "requested"
        second = jobs.once.using(on_conflict="raise").enqueue(2)
        assert enqueue_many(jobs.once, [3]) == 1
        assert {message.pk for message in Message.objects.all()} == {int(first.id), int(second.id)}


@pytest.mark.django_db(transaction=True)
class TestRaces:
    @pytest.fixture(autouse=True)
    def small_statements(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bulk, "MESSAGES_A_STATEMENT", 5)

    def enqueue_many(
        self, on_conflict: str, numbers: Sequence[int], on_progress: Callable[[int], None] | None = None
    ) -> int:
        """Their number, in a thread of its own; 0 if others hold their keys."""
        try:
            return enqueue_many(jobs.once_an_order.using(on_conflict=on_conflict), numbers, on_progress=on_progress)
        except DuplicateMessage:
            return 0
        finally:
            connection.close()

    @pytest.mark.parametrize("on_conflict", ["keep", "replace", "debounce", "raise"])
    def test_bulks_of_several_statements_in_opposite_orders_do_not_deadlock(
        self, session: Session, on_conflict: str
    ) -> None:
        numbers, begun = range(10, 30), set()

        def enqueue_all(numbers: range) -> int:
            def meet(_: int) -> None:
                begun.add(numbers[0])
                wait_until(lambda: len(begun) == 2 or waiting(session), "the other one holds keys too, or waits")

            return self.enqueue_many(on_conflict, numbers, meet)

        counts = concurrently([partial(enqueue_all, numbers), partial(enqueue_all, numbers[::-1])])
        assert sorted(counts) == ([0, 20] if on_conflict == "raise" else [20, 20])
        assert Message.objects.count() == 20

    @pytest.mark.parametrize("on_conflict", ["keep", "raise"])
    def test_bulks_of_one_and_of_several_statements_do_not_deadlock(self, session: Session, on_conflict: str) -> None:
        large, done = range(10, 30)[::-1], []

        def meet(number: int) -> None:
            done.append(number)
            wait_until(lambda: waiting(session), "the small one waits")

        def enqueue_small() -> int:
            wait_until(lambda: done, "the large one holds keys")
            return self.enqueue_many(on_conflict, [large[-1], large[0]])

        actions: list[Callable[[], int]] = [partial(self.enqueue_many, on_conflict, large, meet), enqueue_small]
        assert concurrently(actions) == [20, 0 if on_conflict == "raise" else 2]
        assert Message.objects.count() == 20


class TestMany:
    @pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
    def test_existing_messages_are_treated_as_the_task_declares(self, on_conflict: str) -> None:
        first = jobs.once_an_order.using(run_after=dt.timedelta(hours=1)).enqueue(3, "late")
        enqueue_many(jobs.once_an_order.using(on_conflict=on_conflict), [(3, "lost"), Call((4,))])
        assert row(first).content["args"][1] == ("lost" if on_conflict == "replace" else "late")
        assert {result.args[0] for result in drain()} == {3, 4}


class TestWrongValues:
    @pytest.mark.parametrize(
        ("option", "wrong", "words"),
        [
            *(
                ("unique_key", wrong, r"unique_key must be True .* a text or a callable, not")
                for wrong in (1, 1.5, b"k", ["k"], False, object(), ("k",))
            ),
            *(
                ("unique_key", wrong, "cannot be a unique_key: names are text of 1 to 255 bytes")
                for wrong in ("", "a\x00b", "\ud800", "k" * 256)
            ),
            *(
                ("on_conflict", wrong, "on_conflict must be one of keep, replace, debounce, raise, not")
                for wrong in ("ignore", "", "Keep", 1, None, ["keep"])
            ),
            *(
                ("unique_until", wrong, "unique_until must be one of finished, started, not")
                for wrong in ("start", "", "Finished", 1, None, ["started"])
            ),
        ],
        ids=lambda value: ascii(value)[:20],
    )
    def test_a_wrong_option_is_refused_with_its_value(self, option: str, wrong: Any, words: str) -> None:
        with pytest.raises(InvalidTask, match=words) as refused:
            task(**{"unique_key": "k", option: wrong})(jobs.do)
        assert repr(wrong) in str(refused.value)

    @pytest.mark.parametrize(
        "key",
        ["", "a\x00b", "\ud800", "k" * 2001, "🍵" * 501, None, 5, ["k"], b"k", True],
        ids=["empty", "nul", "surrogate", "long", "long in bytes", "none", "number", "list", "bytes", "true"],
    )
    def test_the_key_of_a_callable_is_validated_before_any_sql(self, key: Any) -> None:
        with (
            no_queries(),
            pytest.raises(InvalidTask, match=r"The unique_key of tests\.support\.site\.jobs\.with_key is") as e,
        ):
            jobs.task_with_key_of(key).enqueue()
        assert "must be a text of 1 to" in str(e.value)

    @pytest.mark.parametrize(("first", "last", "length"), [("!", "~", 2000), ("\u4e00", "\u9fff", 666)])
    def test_the_longest_key_can_be_stored(self, first: str, last: str, length: int) -> None:
        """Without a pattern, so that nothing of it can be compressed."""
        letters = random.Random(7)
        key = "".join(chr(letters.randint(ord(first), ord(last))) for _ in range(length))
        assert jobs.task_with_key_of(key).enqueue().id == jobs.task_with_key_of(key).enqueue().id

    def test_the_error_of_a_callable_is_the_caller_s(self) -> None:
        with no_queries(), pytest.raises(LookupError, match="no such order"):
            jobs.with_a_key_that_can_not_be_made.enqueue()

    def test_a_call_that_is_refused_takes_no_key(self) -> None:
        with pytest.raises(TypeError):
            jobs.once.enqueue(object())
        assert jobs.once.using(on_conflict="raise").enqueue().status == "READY"
