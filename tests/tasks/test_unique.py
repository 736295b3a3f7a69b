"""At most one message for each key."""

from __future__ import annotations

import datetime as dt
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connection, transaction

from django_pgqueue.backend import Call, bulk, enqueue_many
from django_pgqueue.compat import InvalidTask
from django_pgqueue.control import cancel
from django_pgqueue.exceptions import DuplicateMessage
from django_pgqueue.models import Attempt, Message
from django_pgqueue.tasks import task
from django_pgqueue.testing import clock, drain
from tests.support.fixtures.backend import no_queries
from tests.support.sessions import concurrently
from tests.support.site import jobs
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session

pytestmark = pytest.mark.django_db


def row(result: AnyTaskResult) -> Message:
    return Message.objects.get(pk=result.id)


def enqueue(job: Any, *arguments: Any) -> AnyTaskResult:
    """In a thread of its own, which takes its connection along."""
    try:
        result: AnyTaskResult = job.enqueue(*arguments)
    finally:
        connection.close()
    return result


def waiting(session: Session) -> bool:
    """Whether a transaction waits for another one."""
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

    def test_a_text_allows_one_message_with_any_arguments(self) -> None:
        first = jobs.once.enqueue(1)
        assert jobs.once.enqueue(2).id == first.id
        assert row(first).content == {"args": [1], "kwargs": {}}

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

    def test_a_key_holds_for_aenqueue_too(self) -> None:
        first = async_to_sync(jobs.once.aenqueue)(1)
        assert async_to_sync(jobs.once.aenqueue)(2).id == first.id

    def test_a_held_key_returns_the_existing_message(self) -> None:
        first = jobs.once.using(priority=5).enqueue(1)
        second = jobs.once.enqueue(2)
        assert second == first
        assert (second.args, second.task.priority) == ([1], 5)


class TestOnConflict:
    def test_keep_leaves_the_waiting_message(self) -> None:
        first = jobs.once.enqueue(1)
        before = row(first)
        jobs.once.using(priority=9, run_after=dt.timedelta(hours=1)).enqueue(2)
        assert row(first).__dict__ | {"_state": None} == before.__dict__ | {"_state": None}

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

    def test_raise_names_the_other_message(self) -> None:
        once = jobs.once.using(on_conflict="raise")
        first = once.enqueue()
        with pytest.raises(
            DuplicateMessage, match=rf"message {first.id} holds its unique key.*on_conflict='keep'"
        ) as e:
            once.enqueue()
        assert e.value.existing_id == int(first.id)

    def test_a_raised_conflict_leaves_the_transaction_usable(self) -> None:
        once = jobs.once.using(on_conflict="raise")
        once.enqueue()
        with transaction.atomic():
            Group.objects.create(name="before")
            with pytest.raises(DuplicateMessage):
                once.enqueue()
            Group.objects.create(name="after")
            jobs.follow.enqueue()
        assert Group.objects.count() == 2
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

    def test_a_message_that_runs_is_left_alone_and_its_key_is_not_free(self, consume: Consume, diary: Diary) -> None:
        first = jobs.hold_the_key.enqueue("first")
        consume()
        wait_until(diary.words, "it runs")
        for on_conflict in ("keep", "replace", "debounce"):
            again = jobs.hold_the_key.using(on_conflict=on_conflict, priority=7).enqueue("second")
            assert (again.id, again.status, again.args) == (first.id, "RUNNING", ["first"])
        with pytest.raises(DuplicateMessage):
            jobs.hold_the_key.using(on_conflict="raise").enqueue("second")
        diary.allow("first")
        assert ended(first).status == "SUCCESSFUL"
        assert Attempt.objects.get().priority == 0
        diary.allow("third")
        assert ended(jobs.hold_the_key.enqueue("third")).id != first.id

    def test_a_message_asked_to_stop_does_not_replace_a_new_call(self, consume: Consume, diary: Diary) -> None:
        first = jobs.hold_the_key.enqueue("first")
        consume()
        wait_until(diary.words, "it runs")
        assert cancel(first) == "requested"
        second = jobs.hold_the_key.using(on_conflict="raise").enqueue("second")
        assert enqueue_many(jobs.hold_the_key, ["third"]) == 1
        assert Message.objects.count() == 2, "what came third is the second"
        diary.allow("first")
        diary.allow("second")
        assert ended(second).id != ended(first).id
        assert diary.words() == ["first", "second"]


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_of_eight_concurrent_calls_seven_are_refused(self) -> None:
        once = jobs.once.using(on_conflict="raise")

        def refused() -> bool:
            try:
                enqueue(once)
            except DuplicateMessage as error:
                return error.existing_id is not None
            return False

        assert sorted(concurrently([refused] * 8)) == [False] + [True] * 7

    def test_concurrent_bulks_in_any_order_do_not_deadlock(self) -> None:
        def enqueue_all(seed: int) -> int:
            numbers = list(range(40))
            random.Random(seed).shuffle(numbers)
            try:
                return sum(enqueue_many(jobs.once_an_order, numbers) for _ in range(5))
            finally:
                connection.close()

        actions: list[Callable[[], int]] = [partial(enqueue_all, seed) for seed in range(4)]
        assert concurrently(actions) == [200] * 4
        assert Message.objects.count() == 40

    @pytest.mark.parametrize("on_conflict", ["keep", "replace", "debounce", "raise"])
    def test_bulks_of_several_statements_in_opposite_orders_do_not_deadlock(
        self, session: Session, monkeypatch: pytest.MonkeyPatch, on_conflict: str
    ) -> None:
        monkeypatch.setattr(bulk, "MESSAGES_A_STATEMENT", 5)
        begun = set()

        def enqueue_all(numbers: range) -> int:
            def meet(_: int) -> None:
                begun.add(numbers[0])
                wait_until(lambda: len(begun) == 2 or waiting(session), "the other one holds keys too, or waits")

            try:
                return enqueue_many(jobs.once_an_order.using(on_conflict=on_conflict), numbers, on_progress=meet)
            except DuplicateMessage:
                return 0
            finally:
                connection.close()

        numbers = range(10, 30)
        counts = concurrently([partial(enqueue_all, numbers), partial(enqueue_all, numbers[::-1])])
        assert sorted(counts) == ([0, 20] if on_conflict == "raise" else [20, 20])
        assert Message.objects.count() == 20

    @pytest.mark.parametrize("on_conflict", ["keep", "raise"])
    def test_bulks_of_one_and_of_several_statements_do_not_deadlock(
        self, session: Session, monkeypatch: pytest.MonkeyPatch, on_conflict: str
    ) -> None:
        monkeypatch.setattr(bulk, "MESSAGES_A_STATEMENT", 5)
        large, done = range(10, 30)[::-1], []
        once = jobs.once_an_order.using(on_conflict=on_conflict)

        def enqueue_large() -> int:
            def meet(number: int) -> None:
                done.append(number)
                wait_until(lambda: waiting(session), "the small one waits")

            try:
                return enqueue_many(once, large, on_progress=meet)
            finally:
                connection.close()

        def enqueue_small() -> int:
            wait_until(lambda: done, "the large one holds keys")
            try:
                return enqueue_many(once, [large[-1], large[0]])
            except DuplicateMessage:
                return 0
            finally:
                connection.close()

        assert concurrently([enqueue_large, enqueue_small]) == [20, 0 if on_conflict == "raise" else 2]
        assert Message.objects.count() == 20


class TestMany:
    @pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
    def test_existing_messages_are_treated_as_the_task_declares(self, on_conflict: str) -> None:
        first = jobs.once_an_order.using(run_after=dt.timedelta(hours=1)).enqueue(3, "late")
        enqueue_many(jobs.once_an_order.using(on_conflict=on_conflict), [(3, "lost"), Call((4,))])
        assert row(first).content["args"][1] == ("lost" if on_conflict == "replace" else "late")
        assert {result.args[0] for result in drain()} == {3, 4}


class TestWrongValues:
    @pytest.mark.parametrize("wrong", [1, 1.5, b"k", ["k"], False, object, ("k",)], ids=repr)
    def test_a_key_is_true_a_text_or_a_callable(self, wrong: Any) -> None:
        if wrong is object:
            wrong = object()
        with pytest.raises(InvalidTask, match=r"unique_key must be True .* a text or a callable, not") as refused:
            jobs.follow.using(unique_key=wrong)
        assert repr(wrong) in str(refused.value)

    @pytest.mark.parametrize("wrong", ["", "a\x00b", "\ud800", "k" * 256])
    def test_a_text_must_be_one_that_can_be_stored(self, wrong: str) -> None:
        with pytest.raises(InvalidTask, match="cannot be a unique_key: names are text of 1 to 255 bytes"):
            jobs.follow.using(unique_key=wrong)

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

    @pytest.mark.parametrize("wrong", ["ignore", "", "Keep", 1, None, ["keep"]], ids=repr)
    def test_on_conflict_is_one_of_four(self, wrong: Any) -> None:
        with pytest.raises(InvalidTask, match="on_conflict must be one of keep, replace, debounce, raise, not") as e:
            task(unique_key="k", on_conflict=wrong)(jobs.do)
        assert repr(wrong) in str(e.value)

    @pytest.mark.parametrize("wrong", ["start", "", "Finished", 1, None, ["started"]], ids=repr)
    def test_until_is_one_of_two(self, wrong: Any) -> None:
        with pytest.raises(InvalidTask, match="unique_until must be one of finished, started, not") as e:
            task(unique_key="k", unique_until=wrong)(jobs.do)
        assert repr(wrong) in str(e.value)

    def test_a_call_that_is_refused_takes_no_key(self) -> None:
        with pytest.raises(TypeError):
            jobs.once.enqueue(object())
        assert jobs.once.using(on_conflict="raise").enqueue().status == "READY"
