"""Atomic tasks: what they write, what they enqueue and their completion happen together, once, or not at all."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import TransactionTestCase

from django_pgqueue.compat import InvalidTask, task_finished
from django_pgqueue.models import Attempt, Message
from django_pgqueue.tasks import task
from django_pgqueue.testing import drain
from tests.support.databases import refusing_connections
from tests.support.site import jobs
from tests.support.waiting import wait_until
from tests.support.watching import ended, holder, started, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume, Effects
    from tests.support.fixtures.workers import Session, Start

SHORT_LOCK = ("--lock-seconds", "1", "--threads", "1")
WHOLE = ["x", "x, enqueued", "x, second"]
"""What ``write_and_hold`` leaves, with the job that it enqueues."""


def groups() -> list[str]:
    return list(Group.objects.order_by("name").values_list("name", flat=True))


def waiting() -> list[str]:
    """The jobs that wait, by their names."""
    return [message.task.rpartition(".")[2] for message in Message.objects.order_by("id") if message.task]


def first(results: list[AnyTaskResult]) -> AnyTaskResult:
    return results[0]


@pytest.mark.django_db
class TestTogether:
    def test_writes_enqueues_and_completion_commit_together(self) -> None:
        result = jobs.add_group.enqueue("tea")
        assert [done.id for done in drain(limit=1)] == [result.id]
        result.refresh()
        assert (result.status, result.return_value) == ("SUCCESSFUL", [1, None])
        assert (groups(), waiting()) == (["tea"], ["follow"])

    def test_an_error_rolls_everything_back_and_is_recorded(self) -> None:
        result = jobs.add_group.enqueue("tea", {"raise": "OSError"})
        drain()
        result.refresh()
        assert (result.status, statuses(result)) == ("FAILED", ["failed"])
        assert result.errors[0].exception_class_path == "builtins.OSError"
        assert (groups(), waiting()) == ([], [])

    def test_only_the_writes_of_the_last_attempt_stay(self) -> None:
        steps: list[dict[str, Any]] = [{"raise": "OSError"}, {"retry": 0, "state": {"n": 1}}, {"defer": 0}]
        result = jobs.add_group.using(max_attempts=5).enqueue("tea", *steps)
        drain()
        result.refresh()
        assert result.return_value == [4, {"n": 1}]
        assert statuses(result) == ["retried", "retried", "deferred", "succeeded"]
        assert groups() == ["tea"]
        assert Attempt.objects.filter(task="tests.support.site.jobs.follow").count() == 1

    def test_a_rollback_to_a_savepoint_in_the_task_stays(self) -> None:
        jobs.add_groups_with_savepoints.enqueue()
        assert first(drain()).status == "SUCCESSFUL"
        assert groups() == ["inner", "outer"]
        assert Attempt.objects.filter(task="tests.support.site.jobs.follow").count() == 1

    @pytest.mark.parametrize("job", [jobs.return_what_is_no_json, jobs.add_a_group_twice], ids=lambda job: job.name)
    def test_an_error_after_the_writes_rolls_them_back_and_fails_normally(self, job: Any) -> None:
        result = job.using(max_attempts=1).enqueue("tea")
        drain()
        result.refresh()
        assert statuses(result) == ["failed"]
        assert result.errors[0].exception_class_path in ("builtins.TypeError", "django.db.utils.IntegrityError")
        assert groups() == []

    def test_a_task_that_swallows_a_database_error_cannot_complete(self) -> None:
        result = jobs.swallow_an_error_of_the_database.enqueue("tea")
        drain()
        result.refresh()
        assert statuses(result) == ["failed"]
        [error] = result.errors
        assert error.exception_class_path == "django.db.transaction.TransactionManagementError"
        assert "went on after a database error" in error.traceback
        assert "with transaction.atomic():" in error.traceback, "the next step is named"
        assert groups() == []

    def test_an_error_within_a_savepoint_may_be_swallowed(self) -> None:
        jobs.swallow_it_behind_a_savepoint.enqueue("tea")
        assert first(drain()).return_value == "never mind"
        assert groups() == ["tea"]

    def test_a_task_that_sets_rollback_fails(self) -> None:
        result = jobs.give_up_the_transaction.enqueue("tea")
        drain()
        assert statuses(result) == ["failed"]
        assert groups() == []

    def test_an_enqueue_with_its_own_key_does_not_change_its_message(self) -> None:
        result = jobs.enqueue_itself_again.using(unique_key="itself").enqueue()
        [done] = drain()
        assert done.return_value == result.id
        assert Message.objects.count() == 0

    def test_async_tasks_are_refused_with_the_reason(self) -> None:
        with pytest.raises(
            InvalidTask, match=r"follow_async is async and atomic, but .* Make the function synchronous"
        ):
            task(atomic=True, takes_context=True)(jobs.follow_async.func)

    @pytest.mark.parametrize("wrong", ["yes", 1, None, object], ids=repr)
    def test_atomic_is_true_or_false(self, wrong: Any) -> None:
        with pytest.raises(InvalidTask, match="atomic must be True or False, not") as refused:
            task(atomic=wrong)(jobs.do)
        assert repr(wrong) in str(refused.value)


class TestInTransactionTestCase(TransactionTestCase):
    def test_drain_runs_atomic_tasks(self) -> None:
        good, bad = jobs.add_group.enqueue("tea"), jobs.add_group.enqueue("coffee", {"raise": "OSError"})
        drain()
        assert (statuses(good), statuses(bad)) == (["succeeded"], ["failed"])
        assert groups() == ["tea"]


@pytest.fixture
def heard() -> Iterator[list[tuple[str, list[str]]]]:
    """Of the results of atomic tasks that the signal brings: their status, and what is in the history by then."""
    heard: list[tuple[str, list[str]]] = []

    def receive(*, task_result: AnyTaskResult, **_: Any) -> None:
        if getattr(task_result.task, "atomic", False):
            assert not connection.in_atomic_block
            heard.append((str(task_result.status), statuses(task_result)))

    task_finished.connect(receive)
    yield heard
    task_finished.disconnect(receive)


@pytest.mark.django_db(transaction=True)
class TestOutside:
    """In a worker, where a job's transaction is a real one."""

    def test_other_sessions_see_all_writes_only_after_the_end(
        self, consume: Consume, diary: Diary, effects: Effects
    ) -> None:
        result = jobs.write_and_hold.enqueue("x")
        consume()
        started(diary, "x")
        assert (effects(), Message.objects.count()) == ([], 1)
        assert holder(result)
        diary.allow("x-1")
        assert ended(result).status == "SUCCESSFUL"
        assert "x" in effects()
        wait_until(lambda: effects() == WHOLE, "the job that it has enqueued has run")
        assert statuses(result) == ["succeeded"]

    def test_the_signal_comes_after_the_commit_or_the_rollback(
        self, consume: Consume, heard: list[tuple[str, list[str]]]
    ) -> None:
        good, bad = jobs.add_group.enqueue("tea"), jobs.add_group.enqueue("coffee", {"raise": "OSError"})
        consume(threads=1)
        ended(good)
        ended(bad)
        assert heard == [("SUCCESSFUL", ["succeeded"]), ("FAILED", [])]

    def test_a_deferred_constraint_rolls_the_attempt_back(self, consume: Consume, session: Session) -> None:
        session.rows("create table feature_parent (id integer primary key)")
        session.rows(
            "create table feature_child (parent integer references feature_parent deferrable initially deferred)"
        )
        try:
            result = jobs.break_a_deferred_constraint.enqueue()
            consume()
            assert statuses(ended(result)) == ["failed"]
            assert result.errors[0].exception_class_path == "django.db.utils.IntegrityError"
            assert session.value("select count(*) from feature_child") == 0
        finally:
            session.rows("drop table feature_child, feature_parent")

    @pytest.mark.parametrize("leave", [False, True])
    def test_an_error_after_the_commit_is_logged_and_changes_nothing(
        self,
        consume: Consume,
        effects: Effects,
        heard: list[tuple[str, list[str]]],
        caplog: pytest.LogCaptureFixture,
        leave: bool,
    ) -> None:
        """SystemExit, too: libraries for command lines raise it."""
        result = jobs.fail_after_the_commit.using(max_attempts=3).enqueue("x", leave=leave)
        consume()
        assert ended(result).return_value == "x"
        wait_until(lambda: heard, "the signal has come")
        assert effects() == ["x"]
        assert statuses(result) == ["succeeded"]
        assert heard == [("SUCCESSFUL", ["succeeded"])]
        assert "the mail server is away" in caplog.text
        assert f"lost id={result.id}" not in caplog.text

    def test_a_connection_that_is_lost_at_the_commit_is_no_error_of_a_callback(
        self, consume: Consume, effects: Effects, caplog: pytest.LogCaptureFixture
    ) -> None:
        result = jobs.lose_the_connection_at_the_commit.enqueue("x")
        consume()
        assert ended(result).return_value is None
        assert (effects(), statuses(result)) == (["x"], ["succeeded"])
        said = f"Message id={result.id} is done; its connection was lost at the commit"
        wait_until(lambda: said in caplog.text, "the log says so")

    def test_a_lost_attempt_is_rolled_back_when_it_ends(
        self, consume: Consume, diary: Diary, effects: Effects, session: Session, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "django_pgqueue.worker")
        result = jobs.write_and_hold.enqueue("x")
        consume()
        started(diary, "x")
        with session.connection.transaction():
            session.rows("update pgqueue_message set unlock_at = 0")
            session.rows("select pgqueue_message_expire()")
        started(diary, "x", attempt=2)
        diary.allow("x-1")
        wait_until(lambda: f"rolled back id={result.id}" in caplog.text, "the lost attempt has ended")
        assert "AttemptLost" in caplog.text
        assert effects() == []
        diary.allow("x-2")
        ended(result)
        wait_until(lambda: effects() == WHOLE, "the job that it has enqueued has run")
        assert statuses(result) == ["lost", "succeeded"]

    @pytest.mark.parametrize("when", ["in the handler", "before the commit"])
    def test_a_connection_that_is_killed_rolls_back_and_it_runs_again(
        self, consume: Consume, diary: Diary, effects: Effects, session: Session, when: str
    ) -> None:
        result = jobs.write_and_hold.enqueue("x")
        consume()
        started(diary, "x")
        [[entry], *_] = [diary.entries("x")]
        if when == "before the commit":
            # It has written its last row when the row of its message is waited for.
            with session.connection.transaction():
                session.rows("select from pgqueue_message where id = %s for update", int(result.id))
                diary.allow("x-1")
                blocked = "select cardinality(pg_blocking_pids(%s)) > 0"
                wait_until(lambda: session.value(blocked, entry["backend"]), "it completes")
                session.rows("select pg_terminate_backend(%s, 10000)", entry["backend"])
        else:
            session.rows("select pg_terminate_backend(%s, 10000)", entry["backend"])
            diary.allow("x-1")
        started(diary, "x", attempt=2)
        assert effects() == []
        diary.allow("x-2")
        ended(result)
        wait_until(lambda: effects() == WHOLE, "the job that it has enqueued has run")
        assert statuses(result) == ["retried", "succeeded"]
        [error] = result.errors
        assert error.exception_class_path == "django.db.utils.OperationalError"
        assert "terminating connection due to administrator command" in error.traceback, "and not: its lock ran out"

    @pytest.mark.parametrize("then", [True, False], ids=["in the task", "at its end"])
    def test_a_transaction_that_was_idle_for_too_long_runs_again(
        self, consume: Consume, diary: Diary, effects: Effects, session: Session, then: bool
    ) -> None:
        """PostgreSQL ends its session, by what psycopg calls an internal error."""
        database = session.value("select current_database()")
        session.rows(f"alter database {database} set idle_in_transaction_session_timeout = '200ms'")
        try:
            result = jobs.write_and_hold.enqueue("x", then=then)
            consume()
            started(diary, "x")
            [entry] = diary.entries("x")
            gone = "select not exists (select from pg_stat_activity where pid = %s)"
            wait_until(lambda: session.value(gone, entry["backend"]), "its session was ended")
        finally:
            session.rows(f"alter database {database} reset idle_in_transaction_session_timeout")
        diary.allow("x-1")
        diary.allow("x-2")
        ended(result)
        wait_until(lambda: effects() == (WHOLE if then else WHOLE[:2]), "the job that it has enqueued has run")
        assert statuses(result) == ["retried", "succeeded"]
        assert "terminating connection due to idle-in-transaction timeout" in result.errors[0].traceback

    @pytest.mark.parametrize("max_attempts", [3, None])
    def test_a_connection_that_is_always_killed_ends_in_a_failure(
        self, consume: Consume, diary: Diary, effects: Effects, session: Session, max_attempts: int | None
    ) -> None:
        """As when a worker dies, it is no error of the task: who says nothing of attempts has five of them."""
        result, last = jobs.write_and_hold.using(max_attempts=max_attempts).enqueue("x"), max_attempts or 5
        consume(threads=1)
        for attempt in range(1, last + 1):
            started(diary, "x", attempt=attempt)
            session.rows("select pg_terminate_backend(%s, 10000)", diary.entries("x")[-1]["backend"])
            diary.allow(f"x-{attempt}")
        assert statuses(ended(result)) == ["retried"] * (last - 1) + ["failed"]
        assert {error.exception_class_path for error in result.errors} == {"django.db.utils.OperationalError"}
        assert effects() == []

    @pytest.mark.slow
    def test_a_task_without_a_connection_has_not_begun_and_uses_no_attempt(
        self, consume: Consume, diary: Diary, effects: Effects, session: Session, caplog: pytest.LogCaptureFixture
    ) -> None:
        consume(threads=1)
        with refusing_connections(session.value("select current_database()")):
            result = jobs.write_and_hold.using(max_attempts=1).enqueue("x")
            wait_until(lambda: caplog.text.count(f"not begun id={result.id}") == 2, "it was tried again")
        assert "is not currently accepting connections" in caplog.text
        diary.allow("x-3")
        ended(result)
        wait_until(lambda: effects() == WHOLE, "the job that it has enqueued has run")
        assert statuses(result) == ["deferred", "deferred", "succeeded"]

    def test_an_attempt_lost_error_of_another_message_is_an_ordinary_error(self, consume: Consume) -> None:
        """Of a task that consumes raw messages, whose own lock holds."""
        consume()
        assert statuses(ended(jobs.lose_another_message.enqueue())) == ["failed"]


@pytest.mark.django_db(transaction=True)
class TestProcesses:
    def test_a_worker_that_is_killed_after_the_writes_leaves_nothing(
        self, start: Start, diary: Diary, effects: Effects
    ) -> None:
        result = jobs.write_and_hold.enqueue("x")
        killed = start(*SHORT_LOCK)
        started(diary, "x")
        wait_until(effects.writers, "it has written")
        killed.kill()
        start(*SHORT_LOCK)
        started(diary, "x", attempt=2)
        assert effects() == []
        diary.allow("x-2")
        ended(result)
        wait_until(lambda: effects() == WHOLE, "the job that it has enqueued has run")
