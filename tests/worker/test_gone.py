"""A worker whose process tree is killed is missed by the others: its jobs run again long before their locks run out."""

from __future__ import annotations

import signal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections

from django_pgqueue.consumer import gone
from django_pgqueue.consumer.gone import AGAIN_SECONDS, RETURN_SECONDS, Gone
from django_pgqueue.consumer.hold import Hold
from django_pgqueue.consumer.row import SEEN_EVERY_SECONDS, SEEN_HOLDING_SECONDS
from django_pgqueue.consumer.session import Session as WorkerSession
from django_pgqueue.functions import MISSED_AFTER_MS
from django_pgqueue.models import Attempt, Message, Worker
from tests.support.site.tasks import hold, write
from tests.support.waiting import wait_until
from tests.support.watching import ended, holder, started, statuses

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start

HOLDERS = """
select pid from pg_locks where locktype = 'advisory' and objsubid = 1
and (classid::bigint << 32) | objid::bigint = pgqueue_worker_number(%s)
"""


def lock_for_hours(session: Session) -> None:
    """So nothing is taken over because its lock has run out, however slow this machine is."""
    session.rows("update pgqueue_message set unlock_at = unlock_at + 36000000 where unlock_at is not null")


def holders(session: Session, worker: str | None) -> list[int]:
    return [pid for [pid] in session.rows(HOLDERS, worker)]


def lost_of(session: Session) -> int:
    """Attempts that a look ends which takes everybody for missed that was not seen just now."""
    lost: int = session.value("select pgqueue_worker_expire(0)")
    return lost


# Processes


def test_another_worker_runs_the_jobs_of_a_killed_process_tree(start: Start, diary: Diary, session: Session) -> None:
    result = hold.using(max_attempts=1).enqueue("x")
    worker = start("--threads", "1")
    started(diary, "x")
    lock_for_hours(session)
    start()
    worker.send_to_group(signal.SIGKILL)
    started(diary, "x", attempt=2)
    diary.allow("x-2")
    assert ended(result).return_value == {"attempt": 2}
    assert statuses(result) == ["lost", "succeeded"]
    lost = Attempt.objects.get(status="lost")
    assert "no session of it is left, and it was not seen for 6 s (loss 1 of 20)" in str(lost.error_message)
    assert not Worker.objects.filter(pk=lost.worker).exists()


def test_a_worker_that_starts_finds_that_all_others_are_dead(start: Start, diary: Diary, session: Session) -> None:
    result = hold.enqueue("x")
    for attempt in (1, 2):
        worker = start("--threads", "1")
        started(diary, "x", attempt=attempt)
        lock_for_hours(session)
        worker.send_to_group(signal.SIGKILL)
        worker.ends()
    # Lost twice without a reason that is known: it is taken alone.
    start()
    started(diary, "x", attempt=3)
    diary.allow("x-3")
    assert statuses(ended(result)) == ["lost", "lost", "succeeded"]


def test_an_idle_worker_that_may_rest_finds_it(start: Start, diary: Diary, session: Session) -> None:
    result = hold.enqueue("x")
    worker = start("--threads", "1")
    started(diary, "x")
    lock_for_hours(session)
    start(options={"IDLE_POLL_SECONDS": 3600})
    wait_until(lambda: Worker.objects.filter(asleep_until__isnull=False).exists(), "the other one is idle")
    worker.send_to_group(signal.SIGKILL)
    started(diary, "x", attempt=2)
    diary.allow("x-2")
    assert statuses(ended(result)) == ["lost", "succeeded"]


def test_a_worker_whose_connections_break_for_a_moment_loses_nothing(
    start: Start, diary: Diary, session: Session
) -> None:
    result = hold.enqueue("x")
    worker = start("--threads", "1")
    started(diary, "x")
    lock_for_hours(session)
    name = holder(result)
    for times in range(1, 4):
        before = set(holders(session, name))
        for pid in session.strangers():
            session.rows("select pg_terminate_backend(%s, 10000)", pid)
        worker.says("reconnected worker=", times=times)
        wait_until(lambda before=before: set(holders(session, name)) - before, "it holds its lock again")  # type: ignore[misc]
        assert lost_of(session) == 0
    diary.allow("x-1")
    assert statuses(ended(result)) == ["succeeded"]
    assert worker.stop() == 0
    assert not Worker.objects.exists()


def test_a_worker_that_is_stopped_is_alive(start: Start, diary: Diary, session: Session) -> None:
    """With its session: the lock of the message decides."""
    result = hold.enqueue("x")
    worker = start("--threads", "1")
    started(diary, "x")
    lock_for_hours(session)
    worker.send_to_group(signal.SIGSTOP)
    assert holders(session, holder(result))
    session.rows("update pgqueue_worker set seen_at = seen_at - interval '1 minute'")
    assert lost_of(session) == 0
    worker.send_to_group(signal.SIGCONT)
    diary.allow("x-1")
    assert statuses(ended(result)) == ["succeeded"]


def test_behind_a_pooler_the_lock_of_the_message_decides(start: Start, diary: Diary, session: Session) -> None:
    result = hold.enqueue("x")
    worker = start("--threads", "1", options={"LISTEN": False})
    started(diary, "x")
    lock_for_hours(session)
    name = holder(result)
    assert holders(session, name) == []
    worker.kill()
    assert Worker.objects.get(pk=name).server_started_at is None
    assert lost_of(session) == 0
    session.rows("update pgqueue_message set unlock_at = pgqueue_now()")
    start("--threads", "1")
    started(diary, "x", attempt=2)
    diary.allow("x-2")
    ended(result)
    assert "the lock of worker" in str(Attempt.objects.get(status="lost").error_message)


def test_a_worker_whose_lock_a_stranger_holds_works_without_it(start: Start, diary: Diary, session: Session) -> None:
    """It holds the number of a living worker alone as soon as that loses its session: nobody takes it for dead."""
    result = hold.enqueue("x")
    worker = start("--threads", "1")
    started(diary, "x")
    name = holder(result)
    session.rows("begin; lock table pgqueue_worker in access exclusive mode")
    try:
        for pid in session.strangers():
            session.rows("select pg_terminate_backend(%s, 10000)", pid)
        session.rows("select pg_advisory_lock(pgqueue_worker_number(%s))", name)
    finally:
        session.rows("commit")
    worker.says("reconnected worker=")
    wait_until(lambda: Worker.objects.filter(pk=name, server_started_at=None).exists(), "its row says that it has none")
    session.rows("select pg_advisory_unlock_all()")
    assert lost_of(session) == 0
    diary.allow("x-1")
    assert statuses(ended(result)) == ["succeeded"]


def test_the_session_of_the_heartbeats_shows_that_a_worker_lives(start: Start, diary: Diary, session: Session) -> None:
    """Where the process's thread has lost its own, and the server has no room for another."""
    result = hold.enqueue("x")
    start("--threads", "1", "--lock-seconds", "1.5")
    started(diary, "x")
    name = holder(result)
    wait_until(lambda: len(holders(session, name)) == 2, "both sessions hold the lock")
    diary.allow("x-1")
    assert statuses(ended(result)) == ["succeeded"]


def test_a_worker_that_leaves_in_order_is_missed_by_nobody(start: Start, session: Session) -> None:
    worker = start("--threads", "1")
    ended(write.enqueue("x"))
    wait_until(lambda: Worker.objects.filter(server_started_at__isnull=False).exists(), "it has registered")
    assert worker.stop() == 0
    assert not Worker.objects.exists()
    assert not Message.objects.exists()


# The one that looks


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(gone, "time", clock)
    return clock


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the next looks find; looks beyond them raise an error."""
    answers: list[int] = []
    monkeypatch.setattr("django_pgqueue.functions.worker_expire", lambda _: answers.pop(0))
    return answers


class NoSession:
    statements = None
    consumer = "me"


def test_it_looks_only_where_somebody_is_missed(clock: Time, answers: list[int]) -> None:
    found: list[str] = []
    look = Gone(NoSession())  # type: ignore[arg-type]
    look.look_if_due(lambda: found.append("found"))
    answers += [0]
    look.misses_one()
    assert look.next_look == clock.now
    look.look_if_due(lambda: found.append("found"))
    assert (answers, found) == ([], [])


def test_looks_in_vain_are_a_second_apart(clock: Time, answers: list[int]) -> None:
    look = Gone(NoSession())  # type: ignore[arg-type]
    answers += [0, 0]
    for _ in range(3):
        look.misses_one()
        look.look_if_due(lambda: None)
    assert answers == [0]
    assert look.next_look == clock.now + AGAIN_SECONDS
    clock.now += AGAIN_SECONDS
    look.look_if_due(lambda: None)
    assert answers == []


def test_it_looks_again_at_once_where_it_has_found_something(clock: Time, answers: list[int]) -> None:
    found: list[str] = []
    look = Gone(NoSession())  # type: ignore[arg-type]
    look.misses_one()
    answers += [100, 3, 0]
    for _ in range(4):
        look.look_if_due(lambda: found.append("found"))
    assert (answers, found) == ([], ["found"] * 2)


def test_who_has_just_come_back_takes_nobody_for_dead_yet(clock: Time, answers: list[int]) -> None:
    look = Gone(NoSession())  # type: ignore[arg-type]
    look.misses_one()
    look.reconnected()
    look.look_if_due(lambda: None)
    look.misses_one()
    look.look_if_due(lambda: None)
    assert look.next_look == clock.now + RETURN_SECONDS
    clock.now += RETURN_SECONDS
    answers += [0]
    look.look_if_due(lambda: None)
    assert answers == []


# The times fit


def tries(monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> list[float]:
    """When a consumer whose connection has broken tries to connect, in vain."""
    clock = Time()
    monkeypatch.setattr("django_pgqueue.consumer.session.time", clock)
    monkeypatch.setattr("django_pgqueue.consumer.session.is_of_no_use", lambda *_: True)
    session = WorkerSession("default", consumer="me", pooled=False)
    session.connection = Closed()  # type: ignore[assignment]
    began, times = clock.now, []
    while clock.now - began < seconds:
        clock.now += session.failed(OSError("away"))
        times.append(clock.now - began)
    return times


class Closed:
    closed = True

    def close(self) -> None:
        pass


def test_a_worker_comes_back_in_time_from_a_short_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was seen at least this long ago, in its turn of half a second, and it tries at least this often."""
    grace, latest = MISSED_AFTER_MS / 1000, SEEN_HOLDING_SECONDS + 0.5
    times = [0.0, *tries(monkeypatch, seconds=60)]
    pauses = [after - before for before, after in pairwise(times)]
    assert max(pause for at, pause in zip(times, pauses, strict=False) if at < grace - 1) <= 1.0
    assert grace - latest - 1.0 >= 2.0, "a break of two seconds costs nothing"
    assert max(pauses) == 5.0
    assert 2 * max(pauses) <= RETURN_SECONDS, "all have tried before anybody is taken for dead"


def test_an_idle_worker_is_seen_before_it_is_missed() -> None:
    assert MISSED_AFTER_MS / 1000 > SEEN_EVERY_SECONDS + 1.0


def test_a_pooled_session_holds_no_lock(transactional_db: None) -> None:
    session = WorkerSession("default", consumer="me", pooled=True)
    with session.open():
        assert Hold().take(session, "me") is False


def test_the_lock_is_taken_once_in_each_connection(transactional_db: None, session: Session) -> None:
    own = WorkerSession("default", consumer="me", pooled=False)
    lock = Hold()
    for _ in range(2):
        with own.open() as connection:
            assert [lock.take(own, "me") for _ in range(2)] == [True, True]
            assert holders(session, "me") == [connection.info.backend_pid]
            assert lock.take(own, "another name") is True
        wait_until(lambda: not holders(session, "me"), "the session has ended")


def test_the_server_ends_the_transaction_of_a_worker_that_stands_still(transactional_db: None) -> None:
    """Others wait for its locks, and the system of its host goes on answering the keepalives."""
    own = connections["default"].settings_dict["OPTIONS"].get("options", "")
    for given, expected in (("0", "30s"), ("10min", "30s"), ("5s", "5s")):
        options = f"{own} -c idle_in_transaction_session_timeout={given}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(connections["default"].settings_dict["OPTIONS"], "options", options)
            session = WorkerSession("default", consumer="me", pooled=False)
            with session.open() as connection:
                shown = connection.execute("show idle_in_transaction_session_timeout").fetchone()
        assert shown == (expected,)
    session = WorkerSession("default", consumer="me", pooled=True)
    with session.open() as connection:
        with session.transaction():
            assert connection.execute("show idle_in_transaction_session_timeout").fetchone() == ("30s",)
        shown = connection.execute("show idle_in_transaction_session_timeout").fetchone()
        assert shown != ("30s",), "the next transaction may be the application's"


def test_the_server_ends_the_session_of_a_machine_that_is_gone(transactional_db: None) -> None:
    """It asks whether the other side is there, and gives up in the time after which a worker is missed."""
    session = WorkerSession("default", consumer="me", pooled=False)
    with session.open() as connection:

        def setting(name: str) -> Any:
            [value] = connection.execute("select current_setting(%s)::integer", [name]).fetchone() or [None]
            return value

        if setting("tcp_keepalives_idle") == 0:
            pytest.skip("the tests' server is reached by a socket of Unix")
        idle, interval, count = (setting(f"tcp_keepalives_{name}") for name in ("idle", "interval", "count"))
        assert idle + interval * count <= MISSED_AFTER_MS / 1000
        assert setting("tcp_user_timeout") <= MISSED_AFTER_MS
