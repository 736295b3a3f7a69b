"""What somebody else does to one row, or to the queue's own work, does not reach the other jobs of a worker."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

from django_pgqueue import functions
from django_pgqueue.consumer.background import Background
from django_pgqueue.consumer.parts import Parts
from django_pgqueue.consumer.session import Session as WorkerSession
from django_pgqueue.functions import Error, sql_files
from django_pgqueue.models import Attempt, Message, Worker
from django_pgqueue.values.times import microseconds
from django_pgqueue.worker.claim.caution import Caution
from django_pgqueue.worker.claim.held import Heartbeats, Held
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.record.recorder import MAX_REFUSALS, Recorder
from django_pgqueue.worker.run.outcome import EndedAttempt, Failed, Retried, Succeeded
from django_pgqueue.worker.run.progress import SharedReports
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.address import conninfo
from tests.support.databases import empty_database, refusing_connections
from tests.support.site.tasks import cancel_and_hold, hold, hold_on, nothing, write
from tests.support.waiting import SECONDS, wait_until
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.consumer.background import Connect
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session, Start

pytestmark = pytest.mark.django_db(transaction=True)

NOON = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
NEVER = float("inf")
TOO_DEEP = "[" * 100_000 + "]" * 100_000
"""JSON that the stack of a server's process does not hold."""


@contextmanager
def open_transaction(statement: str, *parameters: Any) -> Iterator[None]:
    with psycopg.connect(conninfo()) as other:
        other.execute(statement.encode(), parameters)
        yield
        other.rollback()


@contextmanager
def replaced(session: Session, function: str, body: str) -> Iterator[None]:
    """One of the queue's functions does something else for a while."""
    text = sql_files.current(function)
    head, _, tail = text.partition("$$")
    language = "language plpgsql" if "language plpgsql" in head else "language sql"
    other = head.replace(language, "language plpgsql") + f"$$ {body} $$;" + tail.partition("$$;")[2]
    session.connection.execute(other.encode())
    try:
        yield
    finally:
        session.connection.execute(text.encode())


# A row that somebody has locked


@pytest.mark.parametrize("task", [hold, hold_on])
def test_a_row_locked_by_another_session_blocks_no_other_job(
    start: Start, diary: Diary, session: Session, task: AnyTask
) -> None:
    locked, other = task.enqueue("locked"), task.enqueue("other")
    worker = start("--threads", "2", "--lock-seconds", "2")
    started(diary, "locked")
    started(diary, "other")
    with open_transaction("select pgqueue_message_request_cancel(array[%s]::bigint[])", int(locked.id)):
        lock = "select unlock_at from pgqueue_message where id = %s"
        before = session.value(lock, int(other.id))
        wait_until(lambda: session.value(lock, int(other.id)) > before, "the other's lock is renewed")
        diary.allow("locked-1")
        diary.allow("other-1")
        assert ended(other).return_value == {"attempt": 1}
        third = write.enqueue("third")
        assert ended(third).return_value == "third"
        assert statuses(locked) == []
        worker.says(f"not recorded yet id={locked.id}")
    assert ended(locked).return_value == {"attempt": 1}
    assert statuses(locked) == statuses(other) == ["succeeded"]
    assert worker.stop() == 0


def test_an_atomic_task_that_cancels_a_sibling_blocks_no_job(start: Start, diary: Diary, session: Session) -> None:
    """Nor itself: the sibling's row is locked until the task's own transaction ends."""
    sibling, other = hold.enqueue("sibling"), hold.enqueue("other")
    worker = start("--threads", "4", "--lock-seconds", "2")
    started(diary, "sibling")
    started(diary, "other")
    canceller = cancel_and_hold.enqueue(sibling.id, "canceller")
    started(diary, "canceller")
    lock = "select min(unlock_at) from pgqueue_message where id in (%s, %s)"
    ids = int(other.id), int(canceller.id)
    before = session.value("select max(unlock_at) from pgqueue_message where id in (%s, %s)", *ids)
    wait_until(lambda: session.value(lock, *ids) > before, "their locks are renewed")
    assert ended(write.enqueue("behind")).return_value == "behind"
    diary.allow("other-1")
    assert ended(other).return_value == {"attempt": 1}
    diary.allow("canceller-1")
    assert ended(canceller).return_value == "requested"
    wait_until(
        lambda: session.value("select cancel_requested_at from pgqueue_message where id = %s", int(sibling.id)),
        "the sibling is asked to stop",
    )
    diary.allow("sibling-1")
    ended(sibling)
    assert statuses(canceller) == statuses(other) == statuses(sibling) == ["succeeded"]
    assert worker.stop() == 0


class Waits:
    """Counts the statements that wait for a lock of another session in vain."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("message_heartbeat", "message_progress", "message_locked"):
            monkeypatch.setattr(functions, name, self._counted(getattr(functions, name)))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except psycopg.errors.LockNotAvailable:
                self.count += 1
                raise

        return call


def test_many_locked_rows_do_not_delay_the_heartbeat_of_other_messages(
    bench: Bench, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wait for each of them would take longer than the innocent job's lock."""
    messages = bench.claim(40)
    innocent = messages[20].id
    held = Held(WorkerSettings(lock_seconds=60), bench.session, Parts(bench.session))
    held.add(messages, now=time.monotonic() - 25)
    heartbeats, waits = Heartbeats(held.settings, held), Waits(monkeypatch)
    session.rows("update pgqueue_message set unlock_at = 1")
    with open_transaction("select from pgqueue_message where id <> %s for update", innocent):
        heartbeats.do(lambda: bench.session)
        assert session.rows("select id from pgqueue_message where unlock_at > 1") == [(innocent,)]
        assert waits.count == 1
        heartbeats.do(lambda: bench.session)
        assert waits.count == 2
    heartbeats.do(lambda: bench.session)
    assert session.rows("select id from pgqueue_message where unlock_at = 1") == []
    assert not any(one.lost or one.missing for one in held)


def test_progress_of_locked_rows_delays_no_heartbeat(
    bench: Bench, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = bench.claim(20)
    reports, waits = SharedReports(), Waits(monkeypatch)
    for message in messages:
        reports.progress(message, '{"fraction": 0.5}')
    written = "select count(*)::int from pgqueue_message where progress is not null"
    with open_transaction("select from pgqueue_message where id <> %s for update", messages[9].id):
        reports.write(bench.session.statements)
        assert (session.value(written), waits.count) == (1, 0)
    with open_transaction("lock table pgqueue_message"):
        reports.write(bench.session.statements)
        assert waits.count == 1
    reports.write(bench.session.statements)
    assert (session.value(written), reports.has_progress()) == (20, False)


def test_a_table_that_is_locked_for_long_costs_no_lock(bench: Bench, session: Session) -> None:
    """After it the heartbeat comes at once: an error of it would be followed by a longer pause each time."""
    held = Held(WorkerSettings(lock_seconds=60), bench.session, Parts(bench.session))
    held.add(bench.claim(2), now=time.monotonic() - 25)
    heartbeats = Heartbeats(held.settings, held)
    with open_transaction("lock table pgqueue_message"):
        heartbeats.do(lambda: bench.session)
    session.rows("update pgqueue_message set unlock_at = 1")
    heartbeats.do(lambda: bench.session)
    assert session.rows("select from pgqueue_message where unlock_at = 1") == []


def test_after_errors_the_heartbeat_is_tried_again_before_locks_run_out(bench: Bench) -> None:
    held = Held(WorkerSettings(lock_seconds=60), bench.session, Parts(bench.session))
    held.add(bench.claim(1), now=time.monotonic() - 25)
    heartbeats = Heartbeats(held.settings, held)
    thread = Background("heartbeats", [heartbeats], database="nowhere", worker="bench", pooled=False, row_wait_ms=50)
    for _ in range(12):
        thread._attempt(heartbeats)
    assert "nowhere" in thread.problems[heartbeats.name]
    assert thread.due_at() - time.monotonic() < 60 / 6


def test_without_a_connection_of_their_own_heartbeats_renew_the_locks(
    start: Start, diary: Diary, session: Session
) -> None:
    """The server may be full in the second in which the first one is due."""
    worker = start("--lock-seconds", "6")
    with refusing_connections(connections["default"].settings_dict["NAME"]):
        job = hold.enqueue("job")
        started(diary, "job")
        lock = "select unlock_at from pgqueue_message where id = %s"
        before = session.value(lock, int(job.id))
        wait_until(lambda: session.value(lock, int(job.id)) > before, "the lock is renewed")
        worker.says("the heartbeat is not possible")
    diary.allow("job-1")
    assert ended(job).return_value == {"attempt": 1}
    assert statuses(job) == ["succeeded"]
    assert worker.stop() == 0


def test_a_lock_lasts_from_the_claim_and_not_from_its_answer(
    consume: Consume, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer may come so late that the first heartbeat is due at once."""
    asked: list[float] = []

    def dequeue(*args: Any, original: Callable[..., Any] = functions.message_dequeue, **kwargs: Any) -> Any:
        now = time.monotonic()
        claimed = original(*args, **kwargs)
        asked.extend([now] * len(claimed))
        return claimed

    monkeypatch.setattr(functions, "message_dequeue", dequeue)
    consumer = consume(threads=1)
    hold.enqueue("job")
    started(diary, "job")
    [one] = consumer.held
    assert one.locked <= asked[0]
    diary.allow("job-1")


def test_who_stands_in_for_late_heartbeats_waits_for_no_row(
    bench: Bench, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's thread may not."""
    early, *late = bench.claim(4)
    held = Held(WorkerSettings(lock_seconds=60), bench.session, Parts(bench.session))
    held.add([early], now=time.monotonic() - 35)
    held.add(late, now=time.monotonic() - 45)
    heartbeats, waits = Heartbeats(held.settings, held), Waits(monkeypatch)
    session.rows("update pgqueue_message set unlock_at = 1")
    renewed = "select id from pgqueue_message where unlock_at > 1 order by id"
    with open_transaction("select from pgqueue_message where id = %s for update", late[0].id):
        heartbeats.stand_in(bench.session, busy_since=NEVER)
        assert session.rows(renewed) == [(late[1].id,), (late[2].id,)]
    heartbeats.stand_in(bench.session, busy_since=NEVER)
    assert session.rows(renewed) == [(message.id,) for message in late]
    assert waits.count == 0
    with open_transaction("lock table pgqueue_message"):
        held.next_attention = 0.0
        held.look_after(partial(heartbeats.stand_in, busy_since=NEVER), lambda _: None)
    assert held.parts.problems == []


def test_heartbeats_that_hang_are_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A proxy, or a pooler, may answer no more in one connection. The locks last; the log says what does not."""
    held = Held(WorkerSettings(lock_seconds=60), bench.session, Parts(bench.session))
    heartbeats, now = Heartbeats(held.settings, held), time.monotonic()
    held.add(bench.claim(1), now=now - 45)
    [one] = held
    heartbeats.stand_in(bench.session, busy_since=now - 5)
    assert caplog.text == "", "it may just wait for a row"
    for _ in range(2):
        one.locked = now - 45
        heartbeats.stand_in(bench.session, busy_since=now - 11)
        assert one.locked >= now
    assert caplog.text.count("the heartbeat hangs worker=bench: its connection has not answered for 1") == 1


def test_a_thread_tells_since_when_it_is_busy() -> None:
    busy, free = [], threading.Event()

    class Duty:
        name, max_again_seconds = "something", 1.0

        def due_at(self) -> float:
            return float("inf") if free.is_set() else 0.0

        def do(self, _: Connect) -> None:
            busy.append(thread.busy_since)
            free.set()

    before = time.monotonic()
    thread = Background("bench", [Duty()], database="default", worker="bench", pooled=False, row_wait_ms=50)
    assert thread.busy_since == float("inf")
    thread.start_if_due()
    assert free.wait(SECONDS)
    thread.stop()
    assert before <= busy[0] <= time.monotonic()
    assert thread.busy_since == float("inf")


def test_a_locked_row_does_not_block_a_worker_that_stops(start: Start, diary: Diary) -> None:
    locked = hold.enqueue("locked")
    worker = start("--lock-seconds", "5", "--grace-seconds", "2")
    started(diary, "locked")
    with open_transaction("select from pgqueue_message where id = %s for update", int(locked.id)):
        diary.allow("locked-1")
        worker.says(f"not recorded yet id={locked.id}")
        assert worker.stop() in (0, 1)


def test_a_worker_whose_own_row_is_locked_goes_on(start: Start, diary: Diary) -> None:
    running, waits = hold.enqueue("running"), write.enqueue("waits")
    assert running.id < waits.id
    worker = start("--threads", "1", "--lock-seconds", "20")
    started(diary, "running")
    wait_until(lambda: Message.objects.filter(worker__isnull=False).count() == 1, "what was claimed ahead is back")
    with open_transaction("select from pgqueue_worker for update"):
        diary.allow("running-1")
        ended(running)
        assert ended(waits).return_value == "waits"
    assert worker.stop() == 0


# Ends, one by one


class Bench:
    """A recorder on a session of its own, and messages that it holds."""

    def __init__(self) -> None:
        self.session = WorkerSession("default", consumer="bench", pooled=False, row_wait_ms=50)
        self.session.open()
        self.recorded: list[tuple[EndedAttempt, str]] = []
        self.recorder = Recorder(self.session, announce=lambda tell: tell(), on_recorded=self._note)

    def _note(self, ends: list[EndedAttempt], otherwise: dict[tuple[int, int], str]) -> None:
        for end in ends:
            key = end.message.id, end.message.attempt
            self.recorded.append((end, otherwise.get(key, end.outcome.status)))

    def claim(self, count: int) -> list[functions.Received]:
        for _ in range(count):
            nothing.enqueue()
        return functions.message_dequeue(self.session.statements, limit=count, worker="bench", tasks=True)

    def end(self, message: functions.Received, result: str | None = None, error: Error | None = None) -> None:
        outcome = Succeeded(result) if error is None else Failed(error)
        self.recorder.add([EndedAttempt(message, outcome, microseconds(NOON), microseconds(NOON))], now=0.0)

    @property
    def statuses(self) -> dict[int, str]:
        return {end.message.id: status for end, status in self.recorded}


@pytest.fixture
def bench(transactional_db: None) -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.session.connection.close()


def history() -> dict[int, str]:
    return dict(Attempt.objects.filter(final=True).values_list("message_id", "status"))


def test_an_end_that_is_refused_becomes_a_failure_and_others_are_unchanged(bench: Bench) -> None:
    messages = bench.claim(5)
    for number, message in enumerate(messages):
        bench.end(message, TOO_DEEP if number == 2 else "1")
    bench.recorder.write()
    for _ in range(MAX_REFUSALS):
        bench.recorder.write_blocked(now=0.0)
    expected = {message.id: "failed" if number == 2 else "succeeded" for number, message in enumerate(messages)}
    assert history() == expected == bench.statuses
    reason = Attempt.objects.get(message_id=messages[2].id).error_message
    assert reason == "PostgreSQL cannot store the end of the attempt (succeeded): stack depth limit exceeded"
    assert len(bench.recorder) == 0
    assert not bench.session.is_closed


def test_ends_come_first_after_an_error_of_another_part(bench: Bench) -> None:
    """Else a claim that fails each time would come before them each time, and pause them anew."""
    [message] = bench.claim(1)
    bench.end(message, "1")
    bench.recorder.pause(1.0, now=10.0)
    assert bench.recorder.due_at(busy=False) < 11.0
    bench.recorder.write_if_due(now=10.9, busy=False)
    assert history() == {}
    bench.recorder.write_if_due(now=11.0, busy=False)
    assert history() == {message.id: "succeeded"}


def test_a_session_that_still_owes_an_answer_is_opened_anew(bench: Bench) -> None:
    """As where a job has closed its socket: PostgreSQL's library refuses each statement after that, without end."""
    bench.session.connection.pgconn.send_query(b"select 1")
    with pytest.raises(psycopg.OperationalError, match="another command is already in progress") as refused:
        functions.now(bench.session.statements)
    bench.session.failed(refused.value)
    assert bench.session.is_closed


@pytest.mark.parametrize(
    "code",
    ["raise_exception", "assert_failure", "AB001", "PT409", "H0001", "X0001", "0A001", "2F005", "21000", "20000"],
)
def test_an_end_that_somebodys_trigger_refuses_takes_no_other_along(bench: Bench, session: Session, code: str) -> None:
    messages = bench.claim(3)
    for number, message in enumerate(messages):
        bench.end(message, str(number))
    session.rows(f"""
        create function refuse() returns trigger language plpgsql
        as $$ begin if new.result = '1' then raise exception using errcode = '{code}'; end if; return new; end $$
    """)
    session.rows("create trigger refuse before insert on pgqueue_attempt for each row execute function refuse()")
    try:
        bench.recorder.write()
        for _ in range(MAX_REFUSALS):
            bench.recorder.write_blocked(now=0.0)
    finally:
        session.rows("drop function refuse cascade")
    assert history() == {
        message.id: "failed" if number == 1 else "succeeded" for number, message in enumerate(messages)
    }


def test_a_failure_that_is_refused_is_a_failure_with_a_short_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    [message] = bench.claim(1)
    monkeypatch.setattr(Error, "as_json", as_json_once_refused(Error.as_json))
    bench.end(message, error=Error(message="too much"))
    bench.recorder.write()
    assert history() == {message.id: "failed"}
    assert "cannot store" in (Attempt.objects.get().error_message or "")


def as_json_once_refused(original: Callable[[Error], str]) -> Callable[[Error], str]:
    return lambda error: "\x00" if error.message == "too much" else original(error)


def test_an_end_whose_row_is_locked_waits_and_the_others_are_written(bench: Bench) -> None:
    messages = bench.claim(20)
    for message in messages:
        bench.end(message)
    with open_transaction("select from pgqueue_message where id = %s for update", messages[7].id):
        bench.recorder.write()
        assert len(history()) == 19
        assert len(bench.recorder) == 1
        bench.recorder.write_blocked(now=0.0)
        assert len(bench.recorder) == 1
    bench.recorder.write_blocked(now=0.0)
    assert set(history().values()) == {"succeeded"}
    assert len(history()) == 20


def test_a_signal_of_an_end_whose_row_was_locked_comes_after_its_commit(bench: Bench) -> None:
    """A receiver that reads the result would find that the job goes on."""
    [message] = bench.claim(1)
    found: list[dict[int, str]] = []
    at = microseconds(NOON)
    retried = Retried(Error(message="without a further attempt"), 0.0)
    bench.recorder.add([EndedAttempt(message, retried, at, at, tell=lambda: found.append(history()))], now=0.0)
    with open_transaction("select from pgqueue_message where id = %s for update", message.id):
        bench.recorder.write()
    bench.recorder.write_blocked(now=0.0)
    assert found == [{message.id: "failed"}]
    assert bench.statuses == {message.id: "failed"}


def test_an_end_of_a_lost_message_is_dropped_while_others_are_locked(bench: Bench) -> None:
    locked, lost = bench.claim(2)
    for message in (locked, lost):
        bench.end(message)
    Message.objects.filter(pk=lost.id).update(worker="another")
    with open_transaction("select from pgqueue_message where id = %s for update", locked.id):
        bench.recorder.write()
        assert bench.statuses == {lost.id: "lost"}
    bench.recorder.write_blocked(now=0.0)
    assert bench.statuses == {lost.id: "lost", locked.id: "succeeded"}


def test_ends_that_are_not_written_are_kept_when_the_connection_breaks(bench: Bench, session: Session) -> None:
    messages = bench.claim(3)
    for message in messages:
        bench.end(message)
    session.rows("select pg_terminate_backend(%s, 5000)", bench.session.connection.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        bench.recorder.write()
    assert len(bench.recorder) == 3
    bench.session.open()
    bench.recorder.write()
    assert len(history()) == 3


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.worker.record.recorder.MANY", 2)


@pytest.mark.usefixtures("few_are_many")
def test_ends_that_come_after_the_statement_was_prepared_have_another_one(bench: Bench) -> None:
    messages = bench.claim(5)
    for message in messages[:3]:
        bench.end(message, result=f"{message.id}")
    bench.recorder.prepare()
    for message in messages[3:]:
        bench.end(message, result=f"{message.id}")
    bench.recorder.prepare()
    assert bench.recorder.due_at(busy=True) <= time.monotonic(), "what is prepared waits for nothing"
    bench.recorder.write_if_due(now=time.monotonic(), busy=True)
    assert list(history()) == [message.id for message in messages[:3]]
    assert len(bench.recorder) == 2
    bench.recorder.write()
    assert len(history()) == 5
    assert dict(Attempt.objects.values_list("message_id", "result")) == {m.id: m.id for m in messages}
    assert len(bench.recorder) == 0


@pytest.mark.usefixtures("few_are_many")
def test_who_has_nothing_else_to_do_writes_all_ends_at_once(bench: Bench) -> None:
    messages = bench.claim(3)
    for message in messages[:2]:
        bench.end(message)
    bench.recorder.prepare()
    bench.end(messages[2])
    bench.recorder.write_if_due(now=time.monotonic(), busy=False)
    assert len(history()) == 3


@pytest.mark.usefixtures("few_are_many")
def test_as_many_ends_as_fill_a_statement_wait_for_no_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.worker.record.recorder.MAX_RECORDED", 3)
    messages = bench.claim(5)
    for message in messages[:2]:
        bench.end(message)
    bench.recorder.prepare()
    for message in messages[2:]:
        bench.end(message)
    bench.recorder.write_if_due(now=time.monotonic(), busy=True)
    assert len(history()) == 5


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("given_back", [False, True])
def test_ends_under_an_earlier_name_are_not_prepared(bench: Bench, given_back: bool) -> None:
    """The claim that is on its way may give these messages back, under the name that the process has now."""
    messages = bench.claim(3)
    for message in messages:
        bench.end(message)
    bench.session.consumer = "bench again"
    bench.recorder.prepare()
    if given_back:
        Message.objects.update(worker="bench again")
        for message in messages:
            message.worker = "bench again"
    bench.recorder.write_if_due(now=time.monotonic(), busy=False)
    assert set(bench.statuses.values()) == {"succeeded"}
    assert len(history()) == 3


@pytest.mark.usefixtures("few_are_many")
def test_only_successes_are_prepared(bench: Bench) -> None:
    messages = bench.claim(3)
    bench.end(messages[0])
    bench.end(messages[1], error=Error(message="no"))
    bench.end(messages[2])
    bench.recorder.prepare()
    bench.recorder.write_if_due(now=0.001, busy=True)
    assert history() == {}, "they wait for others"
    bench.recorder.write()
    assert list(history().values()).count("failed") == 1
    assert len(history()) == 3


@pytest.mark.usefixtures("few_are_many")
def test_prepared_ends_are_written_one_by_one_where_rows_are_locked_lost_or_refused(bench: Bench) -> None:
    fine, locked, lost, refused = bench.claim(4)
    for message in (fine, locked, lost):
        bench.end(message)
    bench.end(refused, TOO_DEEP)
    bench.recorder.prepare()
    Message.objects.filter(pk=lost.id).update(worker="another")
    with open_transaction("select from pgqueue_message where id = %s for update", locked.id):
        bench.recorder.write_if_due(now=time.monotonic(), busy=True)
        assert bench.statuses == {fine.id: "succeeded", lost.id: "lost"}
    for _ in range(MAX_REFUSALS):
        bench.recorder.write_blocked(now=0.0)
    assert history() == {fine.id: "succeeded", locked.id: "succeeded", refused.id: "failed"}
    assert len(bench.recorder) == 0


@pytest.mark.usefixtures("few_are_many")
def test_prepared_ends_are_kept_when_the_connection_breaks(bench: Bench, session: Session) -> None:
    messages = bench.claim(4)
    for message in messages[:3]:
        bench.end(message)
    bench.recorder.prepare()
    bench.end(messages[3])
    session.rows("select pg_terminate_backend(%s, 5000)", bench.session.connection.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        bench.recorder.write_if_due(now=time.monotonic(), busy=True)
    assert len(bench.recorder) == 4
    bench.recorder.prepare()
    bench.recorder.pause(1.0, now=time.monotonic())
    assert bench.recorder.due_at(busy=True) > time.monotonic() + 0.5, "not first on the next connection"
    bench.session.open()
    bench.recorder.write()
    assert len(history()) == 4


def test_an_end_does_not_fail_because_a_function_is_missing_for_a_moment(bench: Bench, session: Session) -> None:
    [message] = bench.claim(1)
    bench.end(message)
    with replaced(session, "pgqueue_message_complete", "begin raise undefined_function; end"):
        bench.recorder.write()
        for _ in range(2 * MAX_REFUSALS):
            bench.recorder.write_blocked(now=0.0)
    assert history() == {}
    bench.recorder.write_blocked(now=0.0)
    assert history() == {message.id: "succeeded"}


def test_an_end_waits_while_the_server_has_no_room_for_another_lock(bench: Bench, session: Session) -> None:
    """The error is that of a value for which there is no memory."""
    done, failed = bench.claim(2)
    bench.end(done, "1")
    bench.end(failed, error=Error(message="no paper"))
    no_room = "begin raise out_of_memory; end"
    with (
        replaced(session, "pgqueue_message_complete", no_room),
        replaced(session, "pgqueue_message_fail", no_room),
    ):
        bench.recorder.write()
        for _ in range(2 * MAX_REFUSALS):
            bench.recorder.write_blocked(now=0.0)
    assert history() == {}
    bench.recorder.write_blocked(now=0.0)
    assert history() == {done.id: "succeeded", failed.id: "failed"}
    assert Attempt.objects.get(message_id=failed.id).error_message == "no paper"


def test_ends_that_need_a_larger_file_than_the_server_allows_are_written_in_parts(bench: Bench) -> None:
    messages = bench.claim(300)
    for message in messages:
        bench.end(message, f'"{"x" * 1000}"')
    bench.session.connection.execute("set work_mem = '64kB'")
    bench.session.connection.execute("set temp_file_limit = 0")
    bench.recorder.write()
    assert set(history().values()) == {"succeeded"}
    assert len(history()) == 300


# A row that cannot be read


@pytest.fixture
def unchecked(session: Session) -> Iterator[None]:
    """The table as a restored dump may have it, without the checks of its times."""
    checks = session.rows(
        "select conname, pg_get_constraintdef(oid) from pg_constraint "
        "where conrelid = 'pgqueue_message'::regclass and contype = 'c' and pg_get_constraintdef(oid) ~ 'created_at'"
    )
    for name, _ in checks:
        session.rows(f"alter table pgqueue_message drop constraint {name}")
    yield
    session.rows("delete from pgqueue_message")
    for name, definition in checks:
        session.rows(f"alter table pgqueue_message add constraint {name} {definition}")


@pytest.mark.parametrize("created_at", ["11476-01-01", "0044-03-15 BC"])
def test_a_row_that_cannot_be_read_stops_no_other_job(
    start: Start, session: Session, unchecked: None, created_at: str
) -> None:
    before, unreadable, after = (nothing.enqueue() for _ in range(3))
    session.rows(
        "update pgqueue_message set created_at = %s::timestamptz, max_attempts = 1 where id = %s",
        created_at,
        int(unreadable.id),
    )
    worker = start("--threads", "2")
    assert ended(before).status == ended(after).status
    worker.says(f"unreadable id={unreadable.id} attempt=1")
    assert ended(nothing.enqueue()).attempts == 1
    assert "crashed" not in worker.output
    assert worker.stop() == 0


GROWS = """{"args": [""" + "1e131071," * 9000 + """1], "kwargs": {}}"""
"""JSON of 0.1 MB, whose text in PostgreSQL has more than a gigabyte, which it cannot send."""
GROWN_SECONDS = 180.0
"""The server prints the gigabyte three times."""


@pytest.mark.parametrize(("column", "words"), [("content", []), ("state", []), ("content", ["--burst"])])
def test_a_row_that_cannot_be_sent_fails_alone(start: Start, session: Session, column: str, words: list[str]) -> None:
    before = write.enqueue("before")
    values = {"content": '{"args": [], "kwargs": {}}', "headers": None, "state": None} | {column: GROWS}
    poison = session.value(
        "insert into pgqueue_message (task, dequeue_at, content, headers, state) values (%s, 0, %s, %s, %s) "
        "returning id",
        nothing.module_path, values["content"], values["headers"], values["state"],
    )  # fmt: skip
    after = write.enqueue("after")
    worker = start("--threads", "2", *words, ready=False)
    wait_until(lambda: not Message.objects.exists(), "all have ended", GROWN_SECONDS)
    assert [ended(job).return_value for job in (before, after)] == ["before", "after"]
    worker.says(f"unreadable id={poison} attempt=1: its text is too large to be sent, or is no UTF-8")
    assert session.value("select error_message from pgqueue_attempt where message_id = %s", poison) == (
        "The message cannot be read: its text is too large to be sent, or is no UTF-8"
    )
    assert Attempt.objects.get(message_id=poison).content is None or column != "content", "the history can be read"
    assert statuses(before) == statuses(after) == ["succeeded"]
    assert (worker.ends() if words else worker.stop()) == 0


def test_a_quarantined_row_that_cannot_be_sent_fails_alone(start: Start, session: Session) -> None:
    session.rows(
        "insert into pgqueue_message (task, dequeue_at, alone_at, lost, in_line, content) "
        "values (%s, %s, 0, 1, false, %s)",
        nothing.module_path, 2**63 - 1, GROWS,
    )  # fmt: skip
    worker = start("--threads", "2")
    wait_until(lambda: not Message.objects.exists(), "the row has failed", GROWN_SECONDS)
    assert Attempt.objects.get().status == "failed"
    assert ended(nothing.enqueue()).attempts == 1
    assert worker.stop() == 0


def test_messages_locked_by_a_claim_without_a_result_are_released(bench: Bench) -> None:
    [held], [ended_badly] = bench.claim(1), bench.claim(1)
    unknown = bench.claim(3)
    caution = Caution(bench.session)
    caution.failed(psycopg.DatabaseError("out of memory for query result"), worker="bench")
    assert caution.limit == 1
    caution.give_back([held.id], [functions.Token(ended_badly.id, 1, "bench")])
    free = Message.objects.filter(worker__isnull=True, attempt=0)
    assert set(free.values_list("id", flat=True)) == {message.id for message in unknown}
    assert set(Message.objects.filter(worker="bench").values_list("id", flat=True)) == {held.id, ended_badly.id}


def test_a_claim_after_one_that_failed_is_small_and_the_next_ones_grow(bench: Bench) -> None:
    caution = Caution(bench.session)
    caution.claimed(100, 0)
    assert caution.limit is None
    caution.failed(MemoryError(), worker="bench")
    limits = [caution.limit]
    for found, unreadable in ((1, 0), (2, 0), (3, 1), (1, 0), (1, 0)):
        caution.claimed(found, unreadable)
        limits.append(caution.limit)
    assert limits == [1, 2, 4, 1, 2, None]
    for error in (psycopg.errors.LockNotAvailable(), psycopg.errors.AdminShutdown()):
        caution.failed(error, worker="bench")
        assert caution.limit is None


# The queue's own work


@pytest.mark.parametrize(
    "function",
    ["pgqueue_message_settle", "pgqueue_worker_seen", "pgqueue_worker_wake", "pgqueue_message_next_at",
     "pgqueue_attempt_maintain", "pgqueue_message_cancellations", "pgqueue_message_heartbeat",
     "pgqueue_schedule_fire"],
)  # fmt: skip
def test_an_error_in_the_queues_own_work_ends_no_worker(
    start: Start, diary: Diary, session: Session, function: str
) -> None:
    session.rows(
        "insert into pgqueue_schedule (name, next_at, interval_ms, task, queue) "
        "values ('due', pgqueue_now(), 86400000, 'tests.support.site.tasks.nothing', 'default')"
    )
    with replaced(session, function, "begin raise exception 'nobody expects this'; end"):
        worker = start("--threads", "2", "--lock-seconds", "9")
        held = session.value(
            "insert into pgqueue_message (queue, task, dequeue_at, content) "
            "values ('default', 'tests.support.site.tasks.hold', 0, %s) returning id",
            json.dumps({"args": ["x"], "kwargs": {}}),
        )
        started(diary, "x")
        session.rows(
            "insert into pgqueue_message (queue, task, dequeue_at, content) "
            "values ('default', 'tests.support.site.tasks.write', 0, %s)",
            json.dumps({"args": ["y"], "kwargs": {}}),
        )
        wait_until(lambda: "y" in diary.words(), "another job runs")
        wait_until(
            lambda: "nobody expects this" in worker.output or function.endswith(("wake", "next_at")), "it says so"
        )
        assert worker.output.count("nobody expects this") <= 3, "once for each part of the turn that it stops"
        if function == "pgqueue_attempt_maintain":
            its_row = Worker.objects.filter(problem__contains="nobody expects this")
            wait_until(its_row.exists, "its row says so")
        diary.allow("x-1")
    wait_until(lambda: not Message.objects.exists(), "both have ended")
    assert Attempt.objects.filter(message_id=held, status="succeeded").exists()
    assert "crashed" not in worker.output
    assert worker.stop() == 0


def test_slow_maintenance_blocks_no_job(start: Start, session: Session) -> None:
    session.rows("select pg_advisory_lock(4711)")
    try:
        body = "begin perform pg_advisory_xact_lock(4711); return 0; end"
        with replaced(session, "pgqueue_attempt_maintain", body):
            worker = start()
            wait_until(
                lambda: session.value(
                    "select exists (select from pg_locks where locktype = 'advisory' and objid = 4711 and not granted)"
                ),
                "maintenance hangs",
            )
            assert ended(nothing.enqueue()).attempts == 1
    finally:
        session.rows("select pg_advisory_unlock(4711)")
    assert worker.stop() == 0


def test_an_attempt_that_ends_while_the_partition_of_its_day_is_made_is_recorded(
    bench: Bench, session: Session
) -> None:
    today = session.value("select (pgqueue_clock() at time zone 'UTC')::date")
    name = f"pgqueue_attempt_{today:%Y%m%d}"
    [message] = bench.claim(1)
    session.rows(f"drop table {name}")
    stray = session.value(
        """
        insert into pgqueue_attempt
            (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, status, queue)
        values (1, 0, now(), now(), 1, 0, true, 'succeeded', 'default')
        returning tableoid::regclass::text
        """
    )
    assert stray == "pgqueue_attempt_default"
    results: list[set[int]] = []

    def complete() -> None:
        with psycopg.connect(conninfo(), autocommit=True) as other:
            now = microseconds(dt.datetime.now(dt.UTC))
            end = functions.Success(message.id, message.attempt, None, now, now)
            results.append(functions.message_complete(other, [end], worker="bench"))

    with psycopg.connect(conninfo()) as maker:
        maker.execute("select pgqueue_attempt_partition(%s)", [today])
        ender = threading.Thread(target=complete)
        ender.start()
        wait_until(
            lambda: session.value("select exists (select from pg_locks where not granted and relation is not null)"),
            "the end waits for the partition",
        )
        maker.commit()
        ender.join()
    assert results == [{message.id}]
    places = session.rows("select distinct tableoid::regclass::text from pgqueue_attempt")
    assert places == [(name,)]


# Ids that come again


def test_a_message_with_a_reused_id_is_begun() -> None:
    process = WorkerProcess(WorkerSettings())
    process.wakeup.close()
    holdings = process.held
    old = received(created_at=NOON)
    assert holdings.add([old], now=1.0) == [old]
    assert holdings.add([received(created_at=NOON, worker="renamed")], now=2.0) == [], "a claim that was undone"
    assert old.worker == "renamed", "and that has to be ended by the new name"
    new = received(created_at=NOON + dt.timedelta(seconds=1))
    assert holdings.add([new], now=3.0) == [new]
    assert not holdings.forget(old)
    assert len(holdings) == 1
    assert holdings.forget(new)


def received(*, created_at: dt.datetime, worker: str = "first") -> functions.Received:
    return functions.Received(
        id=1, attempt=1, max_attempts=None, priority=0, queue="default", channel=None, task="a.b", worker=worker,
        dequeue_at=0, created_at=created_at, locked_at=NOON, content="{}", headers=None, state=None,
    )  # fmt: skip


def test_a_consumer_gets_another_name_on_a_restarted_server(transactional_db: None) -> None:
    names = iter(["second"])
    session = WorkerSession("default", consumer="first", pooled=False, renamed=lambda: next(names))
    session.open().close()
    session.open().close()
    assert session.consumer == "first"
    session.server = "another server"
    session.open().close()
    assert session.consumer == "second"


@pytest.mark.parametrize("pooled", [False, True])
def test_a_consumer_gets_another_name_in_another_database_of_the_same_name(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    """As after a restore into a new database, which then gets the name: it gives the ids again that were lost."""
    names = iter(["second"])
    session = WorkerSession("default", consumer="first", pooled=pooled, renamed=lambda: next(names))
    session.open().close()
    with empty_database(conninfo(), "restored") as other:
        monkeypatch.setitem(connections["default"].settings_dict, "NAME", conninfo_to_dict(other)["dbname"])
        session.open().close()
    assert session.consumer == "second"


# Behind a pooler


def test_another_time_zone_and_date_style_is_not_another_server(transactional_db: None) -> None:
    """They may change at any time, and behind a pooler from one transaction to the next."""
    session = WorkerSession("default", consumer="bench", pooled=True)
    session.open()
    with session.connection as connection:
        connection.execute("set timezone = 'Asia/Kathmandu'")
        connection.execute("set datestyle = 'German'")
        with session.transaction():
            assert session.statements is not None


def test_behind_a_pooler_nothing_outlasts_a_transaction(transactional_db: None) -> None:
    """The application gets the same server session for its next transaction."""
    session = WorkerSession("default", consumer="me", pooled=True, row_wait_ms=50, statement_ms=60_000)
    with session.open() as connection:
        connection.execute("set session characteristics as transaction isolation level repeatable read")
        functions.message_dequeue(session.statements, worker="me", tasks=True)
        with session.transaction():
            functions.now(session.statements)
            within = [connection.execute(f"show {name}".encode()).fetchone() for name in SETTINGS]
        after = [connection.execute(f"show {name}".encode()).fetchone() for name in SETTINGS]
    assert within == [("read committed",), ("50ms",), ("1min",)]
    assert after == [("repeatable read",), ("0",), ("0",)]


SETTINGS = ("transaction_isolation", "lock_timeout", "statement_timeout")
