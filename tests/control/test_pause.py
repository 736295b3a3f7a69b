"""A paused queue gives nothing to anybody, until it is resumed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, transaction

from django_pgqueue import functions
from django_pgqueue.consumer import polling
from django_pgqueue.control import Filter, edit, pause, resume, stop_edit
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.models import Message
from django_pgqueue.queue import Queue
from django_pgqueue.testing import drain
from django_pgqueue.worker.claim import floors
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.fixtures.backend import no_queries
from tests.support.site import jobs
from tests.support.site.tasks import hold, nothing, write
from tests.support.waiting import wait_until
from tests.support.watching import asleep, ended, started

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session

pytestmark = pytest.mark.django_db


def paused() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute("select name, paused_by, paused_at from pgqueue_queue where paused_at is not null order by 1")
        return list(cursor.fetchall())


class TestControl:
    def test_new_messages_wait_until_the_queue_is_resumed(self) -> None:
        pause("mail")
        waits = jobs.follow.using(queue_name="mail").enqueue()
        runs = jobs.follow.enqueue()
        assert [result.id for result in drain()] == [runs.id]
        waits.refresh()
        assert (waits.status, waits.attempts) == ("READY", 0)
        assert resume("mail") is True
        assert [result.id for result in drain()] == [waits.id]

    def test_raw_messages_of_a_paused_queue_wait_too(self) -> None:
        queue = Queue("mail")
        queue.send("tea")
        pause("mail")
        assert queue.receive() is None
        assert queue.receive_many(5) == []
        resume("mail")
        message = queue.receive()
        assert message
        message.complete()

    def test_a_locked_message_goes_on(self) -> None:
        queue = Queue("mail")
        queue.send_many(["tea", "coffee"])
        first, second = queue.receive_many(2)
        pause("mail")
        first.heartbeat()
        first.complete()
        second.defer()
        assert queue.receive() is None

    def test_the_first_pause_and_its_author_are_kept(self) -> None:
        pause("mail", by="Ada")
        before = paused()
        pause("mail", by="Bob")
        pause("mail")
        assert paused() == before
        assert before[0][:2] == ("mail", "Ada")

    def test_resume_returns_whether_the_queue_was_paused(self) -> None:
        assert resume("mail") is False
        pause("mail")
        assert [resume("mail"), resume("mail")] == [True, False]
        assert paused() == []

    def test_pause_is_part_of_the_transaction(self) -> None:
        with transaction.atomic():
            pause("default")
            transaction.set_rollback(True)
        result = jobs.follow.enqueue()
        assert [done.id for done in drain()] == [result.id]

    @pytest.mark.parametrize("name", ["", "a\x00b", "\ud800", "q" * 256, None, 5, ["mail"]], ids=repr)
    def test_an_invalid_name_is_refused_before_any_sql(self, name: Any) -> None:
        for control in (pause, resume):
            with (
                no_queries(),
                pytest.raises(InvalidMessage, match="cannot be the name of a queue: names are text") as e,
            ):
                control(name)
            assert repr(name)[:77] in str(e.value)

    @pytest.mark.parametrize("name", ["'; drop table pgqueue_message; --", "a,b", "{}", "q" * 255, "é 🍵"])
    def test_a_queue_of_any_valid_name_can_be_paused(self, name: str) -> None:
        Queue(name).send("tea")
        pause(name)
        assert Queue(name).receive() is None
        assert resume(name)
        assert Queue(name).receive()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", [pause, partial(edit, "cancel", Filter()), partial(stop_edit, 1)])
def test_a_person_is_named_by_a_text(act: Callable[..., Any]) -> None:
    with pytest.raises(InvalidMessage, match=r"^by must be a text, such as user\.get_username\(\), not 7\.$"):
        act(*(["mail"] if act is pause else []), by=7)


class TestInAWorker:
    @pytest.mark.parametrize("slow", [False, True], ids=["full claims", "claims from floors"])
    def test_messages_of_a_paused_queue_do_not_begin_while_other_queues_go_on(
        self, consume: Consume, diary: Diary, monkeypatch: pytest.MonkeyPatch, *, slow: bool
    ) -> None:
        if slow:  # as if every claim had to walk over what somebody's old snapshot keeps
            monkeypatch.setattr(floors, "SLOW_SECONDS", -1.0)
            monkeypatch.setattr(floors, "FULL_SHARE", 0.01)
        for task in [nothing] * 300:
            task.enqueue()
        hold.enqueue("x")
        left = 100
        for task in [nothing] * left:
            task.enqueue()
        consume(threads=1)
        started(diary, "x")
        wait_until(lambda: Message.objects.filter(attempt=0).count() == left, "what was claimed ahead is given back")
        pause("default")
        diary.allow("x-1")
        for n in range(3):
            ended(write.using(queue_name="mail").enqueue(f"{n}"))
        assert Message.objects.filter(queue="default", attempt=0).count() == left
        resume("default")
        wait_until(lambda: not Message.objects.exists(), "the rest has run")

    def test_a_worker_sleeps_although_a_message_is_due_and_resuming_wakes_it(
        self, consume: Consume, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(polling, "POLL_SECONDS", 600.0)  # it would not look by itself
        consume()
        pause("default")
        result = nothing.enqueue()
        wait_until(asleep, "the consumer sleeps")
        resume("default")
        assert ended(result).status == "SUCCESSFUL"

    def test_a_burst_leaves_messages_of_paused_queues(self, session: Session) -> None:
        pause("mail")
        waits, runs = nothing.using(queue_name="mail").enqueue(), nothing.enqueue()
        assert WorkerProcess(WorkerSettings(threads=1, burst=True)).run() == 0
        wait_until(lambda: not session.strangers(), "the slot is gone")
        runs.refresh()
        waits.refresh()
        assert (runs.status, waits.status) == ("SUCCESSFUL", "READY")

    def test_pausing_waits_for_no_session_and_blocks_none(self, session: Session) -> None:
        """Enqueueing and dequeueing only read the row."""
        for _ in range(20):
            nothing.enqueue()
        session.rows("set lock_timeout = '2s'")
        with transaction.atomic():
            pause("default")
            taken = functions.message_dequeue(session.connection, limit=5, tasks=True)
            assert len(taken) == 5, "from the commit on"
            functions.enqueue(
                session.connection, functions.NewMessage(content='{"args": [], "kwargs": {}}', task=nothing.module_path)
            )
        with session.connection.transaction():
            assert functions.message_dequeue(session.connection, tasks=True) == []
            with connection.cursor() as cursor:
                cursor.execute("set lock_timeout = '2s'")
            try:
                resume("default")
            finally:
                connection.close()
        assert len(functions.message_dequeue(session.connection, limit=50, tasks=True)) == 16
