"""The database goes and comes back: nothing is lost, and what was done meanwhile is recorded."""

from __future__ import annotations

import re
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from django.db import connection

from django_pgqueue import control, functions
from django_pgqueue.consumer import connection as consumer_connection
from django_pgqueue.models import Attempt, Message
from django_pgqueue.worker import beside, process
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.address import conninfo
from tests.support.fixtures.consumers import another_transaction
from tests.support.fixtures.workers import Session
from tests.support.site import jobs
from tests.support.site.tasks import hold, hold_on, nothing, write
from tests.support.waiting import wait_until
from tests.support.watching import asleep, at_rest, ended, started, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.compat import AnyTask
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume, Effects
    from tests.support.fixtures.workers import Start
    from tests.support.proxy import Proxy


def terminate_workers_sessions(session: Session) -> int:
    return len([session.rows("select pg_terminate_backend(%s)", pid) for pid in session.strangers()])


def test_no_message_is_lost_when_connections_break_repeatedly(start: Start, diary: Diary, session: Session) -> None:
    """However fast the workers are: they are fed until their connections have been broken often enough."""
    words: set[str] = set()

    def feed() -> None:
        for number in range(len(words), len(words) + 200):
            write.using(max_attempts=100).enqueue(f"{number}")
            words.add(f"{number}")

    feed()
    worker = start("--lock-seconds", "0.5", "--threads", "2", "--processes", "2", ready=False)
    enough, broken = threading.Event(), 0

    def disturb() -> None:
        nonlocal broken
        while not enough.wait(0.1):
            broken += terminate_workers_sessions(session)

    disturber = threading.Thread(target=disturb)
    wait_until(diary.words, "the workers work")
    worker.says("started worker=", times=2)  # one that loses its connection before that starts again
    disturber.start()
    try:
        while broken < 20:
            feed()
            wait_until(lambda: broken >= 20 or Message.objects.count() < 200, "the workers work between two breaks", 60)
    finally:
        enough.set()
        disturber.join()
    wait_until(lambda: not Message.objects.exists(), "the queue is empty", 60)
    assert set(diary.words()) == words
    assert Attempt.objects.filter(status="succeeded", final=True).count() == len(words)
    assert set(Attempt.objects.filter(final=True).values_list("status", flat=True)) == {"succeeded"}
    assert "reconnected worker=" in worker.output
    assert "crashed" not in worker.output
    wait_until(lambda: len(asleep()) == 2, "both sleep, and can be woken")
    ended(nothing.enqueue())
    assert worker.stop() == 0


class Door:
    """The way into the tests' database: ``shut`` sends all but the tests' own sessions away and lets nobody in."""

    def __init__(self, janitor: Session, session: Session) -> None:
        self.janitor = janitor
        self.session = session
        self.database = session.value("select current_database()")

    def shut(self) -> None:
        self.janitor.rows(f"alter database {self.database} with allow_connections false")
        terminate_workers_sessions(self.session)

    def let_read_only(self) -> None:
        self.janitor.rows(f"alter database {self.database} set default_transaction_read_only = on")
        terminate_workers_sessions(self.session)

    def let_write(self) -> None:
        self.janitor.rows(f"alter database {self.database} reset default_transaction_read_only")

    def open(self) -> None:
        self.janitor.rows(f"alter database {self.database} with allow_connections true")


@pytest.fixture
def door(session: Session) -> Iterator[Door]:
    with psycopg.connect(conninfo(), dbname="postgres", autocommit=True) as opened:
        door = Door(Session(opened), session)
        yield door
        door.open()
        door.let_write()


def test_jobs_that_end_while_the_database_is_away_are_recorded_later(start: Start, diary: Diary, door: Door) -> None:
    results = [hold.enqueue("x"), hold_on.enqueue("y")]
    worker = start("--lock-seconds", "600")
    started(diary, "x")
    started(diary, "y")
    child = worker.children[0]
    door.shut()
    worker.says("database error")
    diary.allow("x-1")
    worker.says(f"succeeded id={results[0].id}")
    at_rest(child)
    door.open()
    worker.says("reconnected")
    assert ended(results[0]).return_value == {"attempt": 1}
    diary.allow("y-1")
    for result in results:
        assert statuses(ended(result)) == ["succeeded"]
        assert {name.split("-")[-2] for name in result.worker_ids} == {str(child)}
    assert worker.stop() == 0


@contextmanager
def full_disk(session: Session, what: str) -> Iterator[None]:
    """Of the server, for statements that do ``what``."""
    session.rows("""
        create function be_full() returns trigger language plpgsql
        as $$ begin raise exception 'No space left on device' using errcode = 'disk_full'; end $$
    """)
    session.rows(f"create trigger be_full before {what} execute function be_full()")
    try:
        yield
    finally:
        session.rows("drop function be_full cascade")


def test_a_disk_of_the_server_that_is_full_is_tried_less_and_less_often(
    start: Start, diary: Diary, session: Session
) -> None:
    """The session stays open, and the worker filled its own disk with thousands of lines a second."""
    result = hold.enqueue("x")
    worker = start("--lock-seconds", "600")
    started(diary, "x")
    with full_disk(session, "insert on pgqueue_attempt for each row"):
        diary.allow("x-1")
        worker.says("retry_in_seconds=2.0: No space left on device")
        assert worker.output.count("No space left on device") < 20
        waits = hold.enqueue("y")
        seen = session.value("select seen_at from pgqueue_worker")
        wait_until(lambda: session.value("select seen_at from pgqueue_worker") > seen, "it does what it can")
        assert session.value("select worker from pgqueue_message where id = %s", int(waits.id)) is None, (
            "it takes no more"
        )
    assert statuses(ended(result)) == ["succeeded"]
    diary.allow("y-1")
    assert statuses(ended(waits)) == ["succeeded"]
    assert worker.stop() == 0


def test_ends_are_recorded_while_claims_fail(start: Start, diary: Diary, session: Session) -> None:
    result = hold.enqueue("x")
    worker = start("--threads", "2", "--lock-seconds", "600")
    started(diary, "x")
    with full_disk(session, "update on pgqueue_message for each row when (new.worker is not null)"):
        waits = hold.enqueue("y")
        worker.says("retry_in_seconds=0.4: No space left on device")
        diary.allow("x-1")
        assert statuses(ended(result)) == ["succeeded"]
    diary.allow("y-1")
    assert statuses(ended(waits)) == ["succeeded"]
    assert worker.stop() == 0


def test_jobs_go_on_when_their_own_connections_were_closed_in_between(
    consume: Consume, session: Session, effects: Effects
) -> None:
    """Of threads and of coroutines, and without CONN_HEALTH_CHECKS: the worker has noticed, and drops them."""
    consume(threads=1)
    tasks: list[AnyTask] = [jobs.write, jobs.write_async]
    for number in range(2):
        for task in tasks:
            assert ended(task.enqueue(f"{task.name} {number}")).errors == []
        terminate_workers_sessions(session)
    assert len(effects()) == 4


def test_a_locked_row_of_a_former_name_keeps_no_job_on_a_connection_from_before(
    consume: Consume, session: Session
) -> None:
    """The worker has reconnected, whether it can delete that row now or later."""
    consumer = consume(threads=1)
    session.rows("insert into pgqueue_worker (id, hostname, pid, slots) values ('former', 'host', 1, 1)")
    with another_transaction() as other:
        other.execute("select from pgqueue_worker where id = 'former' for update")
        consumer.registration.former_ids.append("former")
        session.rows("select pg_terminate_backend(%s)", consumer.session.connection.info.backend_pid)
        wait_until(lambda: consumer.slots.reconnects, "its jobs connect anew")
        assert statuses(ended(nothing.enqueue())) == ["succeeded"]
        assert control.order_worker(consumer.id, "slots", slots=3)
        wait_until(lambda: consumer.slots.count == 3, "it follows orders meanwhile")
    wait_until(lambda: not session.rows("select from pgqueue_worker where id = 'former'"), "the row is deleted")


def test_a_worker_survives_a_read_only_server(start: Start, diary: Diary, door: Door) -> None:
    """As a standby is before it is promoted: what runs goes on, and the next connection may lead elsewhere."""
    held = hold.enqueue("x")
    worker = start("--lock-seconds", "600")
    started(diary, "x")
    door.let_read_only()
    worker.says("database error", "read-only transaction")
    diary.allow("x-1")
    worker.says(f"succeeded id={held.id}")
    door.let_write()
    assert statuses(ended(held)) == ["succeeded"]
    ended(nothing.enqueue())
    assert "crashed" not in worker.output
    assert worker.stop() == 0


def test_a_worker_stops_while_the_database_is_away(start: Start, diary: Diary, door: Door) -> None:
    """It waits for its grace, as the database may come back, and begins nothing new."""
    for _ in range(30):
        nothing.enqueue()
    held, behind = hold.enqueue("x"), write.enqueue("behind")
    worker = start("--threads", "1", "--grace-seconds", "1", "--lock-seconds", "600")
    started(diary, "x")
    wait_until(lambda: Message.objects.get(pk=behind.id).worker or worker.output.count("succeeded") == 30, "as far")
    door.shut()
    worker.says("database error")
    worker.send(signal.SIGTERM)
    worker.says("stopping")
    diary.allow("x-1")
    assert worker.ends() == 1
    assert diary.words() == ["x"]
    assert f"succeeded id={held.id}" in worker.output
    assert re.search(f"abandoned id={held.id} .*: its end could not be recorded", worker.output)


def test_a_session_that_acknowledges_and_never_answers_is_closed(
    consume: Consume, proxy: Proxy, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    """What ended meanwhile is recorded on the next connection, and the process claims again."""
    consumer = consume(threads=1)
    held = hold.enqueue("x")
    started(diary, "x")
    proxy.fall_silent()
    consumer.session.connection.answer_seconds = lambda: 0.1
    diary.allow("x-1")
    assert statuses(ended(held)) == ["succeeded"]
    assert "the session has not answered for" in caplog.text
    assert statuses(ended(write.enqueue("y"))) == ["succeeded"]
    consumer.stop()  # it would connect again, behind the proxy


def test_a_session_that_hangs_while_it_is_opened_is_closed(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_connection, "note_connection", lambda _: proxy.fall_silent())
    with pytest.raises(psycopg.OperationalError, match="the session has not answered for"):
        consumer_connection.connect("default", answer_seconds=lambda: 0.2)


def test_a_process_that_is_to_stop_does_not_wait_long_for_an_answer(
    consume: Consume, proxy: Proxy, diary: Diary, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what has ended nothing runs again."""
    monkeypatch.setattr(beside, "LEAVE_SECONDS", 0.1)
    monkeypatch.setattr(process, "LEAVE_SECONDS", 0.6)
    consumer = consume(threads=1, grace_seconds=6)
    held = hold.enqueue("x")
    started(diary, "x")
    proxy.fall_silent()
    consumer.stop()
    diary.allow("x-1")
    wait_until(lambda: consumer.marks.has_left, "it has left")
    assert "the session has not answered for" in caplog.text
    assert statuses(held) == ["succeeded"]


def test_what_ended_before_the_end_of_the_grace_is_recorded_in_another_session(
    consume: Consume, proxy: Proxy, diary: Diary, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session hangs until the grace is over."""
    monkeypatch.setattr(beside, "LEAVE_SECONDS", 0.1)
    monkeypatch.setattr(process, "LEAVE_SECONDS", 1.0)
    consumer = consume(threads=1, grace_seconds=0.5)
    held = hold.enqueue("x")
    started(diary, "x")
    proxy.fall_silent()
    write.enqueue("behind")
    [behind] = functions.message_dequeue(connection, worker=consumer.id, tasks=True)
    consumer.claimer.give_back.unstarted += consumer.held.add([behind], now=time.monotonic())
    consumer.stop()
    diary.allow("x-1")
    wait_until(lambda: consumer.marks.has_left, "it has left")
    assert "the session has not answered for" in caplog.text
    assert "reconnected" not in caplog.text
    assert statuses(held) == ["succeeded"]
    assert Message.objects.get(pk=behind.id).unlock_at is None, "it is given back"


def test_a_process_waits_for_an_answer_for_a_part_of_what_is_left_of_the_grace() -> None:
    one = process.WorkerProcess(WorkerSettings(grace_seconds=60))
    assert one.session.answer_seconds() == 300
    one.phase.stop()
    assert 29 < one.session.answer_seconds() <= 30
    one.phase.stop_by = time.monotonic() + 20
    assert 9 < one.session.answer_seconds() <= 10
    one.phase.stop()
    assert one.session.answer_seconds() == 4
    one.wakeup.close()


def test_the_log_says_why_a_leaving_process_has_lost_its_session(
    consume: Consume, diary: Diary, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = consume(threads=1)
    hold.enqueue("x")
    started(diary, "x")

    def lose(**_: object) -> None:
        consumer.session.connection.close()
        message = "the reason"
        raise psycopg.OperationalError(message)

    monkeypatch.setattr(consumer.recorder, "write_the_last", lose)
    consumer.stop()
    consumer.stop()
    wait_until(lambda: consumer.marks.has_left, "it has left")
    assert "while leaving: the reason" in caplog.text
    diary.allow("x-1")
