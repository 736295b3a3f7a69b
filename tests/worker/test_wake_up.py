"""Who is idle sleeps and is woken; who is busy is left alone; and polling alone does it all the same, later."""

from __future__ import annotations

import datetime as dt
from statistics import median
from typing import TYPE_CHECKING
from uuid import uuid4

from django.db import connection, transaction

from django_pgqueue.models import Attempt, Worker
from tests.support.site.tasks import hold, nothing
from tests.support.waiting import wait_until
from tests.support.watching import asleep, at_rest, ended, started

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start


def seconds_late(result: AnyTaskResult) -> float:
    """How long after it was due, or was enqueued, a job has begun."""
    attempt = Attempt.objects.get(message_id=ended(result).id)
    assert attempt.started_at is not None
    return float(attempt.started_at.timestamp() - attempt.dequeue_at.timestamp())


def all_asleep(workers: int = 1) -> None:
    wait_until(lambda: len(asleep()) == workers, f"{workers} sleep")


def test_a_sleeper_is_woken_within_milliseconds(start: Start) -> None:
    """The median, because the machine may be busy; polling would take half a second."""
    start("-v", "0", ready=False)
    late = []
    for _ in range(15):
        all_asleep()
        late.append(seconds_late(nothing.enqueue()))
    assert median(late) < 0.1, late


def test_a_rolled_back_enqueue_wakes_nobody(start: Start, session: Session) -> None:
    start("-v", "0", ready=False)
    all_asleep()
    heard = Notifications(session)
    with transaction.atomic():
        nothing.enqueue()
        transaction.set_rollback(True)
    assert heard.since_last_time() == []
    ended(nothing.enqueue())
    assert len(heard.since_last_time()) == 1


def test_scheduled_jobs_start_on_time_while_the_worker_sleeps(start: Start) -> None:
    worker = start("-v", "0", ready=False)
    all_asleep()
    at_rest(worker.children[0])
    results = [nothing.using(run_after=dt.timedelta(seconds=seconds)).enqueue() for seconds in (1.5, 2.7, 3.9)]
    late = [seconds_late(result) for result in results]
    assert min(late) >= 0
    assert median(late) < 0.15, late


def test_a_woken_worker_with_full_hands_wakes_the_next(start: Start, diary: Diary) -> None:
    start("-v", "0", "--processes", "2", "--threads", "1", ready=False)
    late = []
    for number in range(3):
        all_asleep(2)
        words = [f"a{number}", f"b{number}"]
        with transaction.atomic():
            results = [hold.enqueue(word) for word in words]
        for word in words:
            started(diary, word)
        for word in words:
            diary.allow(f"{word}-1")
        late.append(max(seconds_late(result) for result in results))
    assert median(late) < 0.25, late


def test_a_sleeper_that_nobody_wakes_looks_by_itself(start: Start, session: Session) -> None:
    start("-v", "0", ready=False)
    for _ in range(2):
        all_asleep()
        with transaction.atomic():
            Worker.objects.all().delete()  # as if its notification had been lost
            result = nothing.enqueue()
        assert seconds_late(result) < 3


def test_without_listen_polling_does_it(start: Start) -> None:
    worker = start("-v", "0", ready=False, options={"LISTEN": False})
    wait_until(Worker.objects.exists, "the worker is known")
    for _ in range(2):
        at_rest(worker.children[0])
        assert asleep() == []
        assert seconds_late(nothing.enqueue()) < 3
    assert seconds_late(nothing.using(run_after=dt.timedelta(seconds=0.5)).enqueue()) < 3


def test_while_there_is_work_nobody_sleeps_and_nobody_notifies(start: Start, diary: Diary, session: Session) -> None:
    start("-v", "0", "--threads", "1", ready=False)
    all_asleep()
    heard = Notifications(session)
    held = hold.enqueue("x")
    started(diary, "x")
    wait_until(lambda: not asleep(), "nobody sleeps")
    assert len(heard.since_last_time()) == 1

    backlog = [nothing.enqueue() for _ in range(50)]
    assert heard.since_last_time() == []
    diary.allow("x-1")
    ended(backlog[-1])
    ended(held)
    assert heard.since_last_time() == []
    all_asleep()
    ended(nothing.enqueue())
    assert len(heard.since_last_time()) == 1


class Notifications:
    """What the workers that are known now are told."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.heard: list[tuple[str, str]] = []
        session.connection.add_notify_handler(lambda said: self.heard.append((said.channel, said.payload)))
        for channel in [f"pgqueue_{worker}" for worker in Worker.objects.values_list("id", flat=True)] + ["last_word"]:
            session.rows(f'listen "{channel}"')

    def since_last_time(self) -> list[tuple[str, str]]:
        """They come in the order of the commits: what was said before the last word has come when it has."""
        last_word = ("last_word", uuid4().hex)
        with connection.cursor() as cursor:
            cursor.execute("select pg_notify(%s, %s)", last_word)
        wait_until(lambda: self.session.rows("select 1") and last_word in self.heard, "the last word is heard")
        heard = [said for said in self.heard if said[0] != "last_word"]
        self.heard.clear()
        return heard
