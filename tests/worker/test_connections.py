"""The connections of jobs: kept for the next one, and not for ever."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, connections
from django.db.backends.signals import connection_created
from psycopg import errors

from django_pgqueue.consumer import background
from django_pgqueue.worker.run import (
    connect_first,
    connections as worker_connections,
    event_loop,
    session_reset,
    threads,
)
from django_pgqueue.worker.run.connections import close_lost_connections, has_connected, leave_connections_clean
from django_pgqueue.worker.run.session_reset import state_of, watch
from tests.support.address import conninfo
from tests.support.databases import refusing_connections
from tests.support.proxy import DROP
from tests.support.site import jobs, slow, tasks
from tests.support.site.receivers import listening
from tests.support.waiting import SECONDS, wait_until
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_pgqueue.compat import AnyTask
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume, Effects
    from tests.support.fixtures.workers import Session, Start
    from tests.support.proxy import Proxy


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [jobs.which_session, jobs.which_session_async], ids=["sync", "async"])
def test_successive_jobs_share_a_connection_that_django_would_close(consume: Consume, task: AnyTask) -> None:
    assert connection.settings_dict["CONN_MAX_AGE"] == 0
    consume(threads=1)
    sessions = {ended(task.enqueue()).return_value for _ in range(5)}
    assert len(sessions) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [jobs.which_session, jobs.which_session_async], ids=["sync", "async"])
def test_an_idle_slot_closes_its_connection(consume: Consume, session: Session, task: AnyTask) -> None:
    consume(threads=1, idle_seconds=0.05)
    pid = ended(task.enqueue()).return_value
    wait_until(lambda: pid not in session.strangers(), "the session is closed")


@pytest.mark.django_db(transaction=True)
def test_a_project_need_not_have_a_setting_that_django_has_no_default_for(
    consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(connections.settings["default"], "DISABLE_SERVER_SIDE_CURSORS")
    consume(threads=1)
    assert ended(jobs.which_session.enqueue()).status == "SUCCESSFUL"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [jobs.write, jobs.write_async], ids=["sync", "async"])
def test_jobs_behind_one_that_got_no_connection_wait_for_one(
    consume: Consume,
    effects: Effects,
    task: AnyTask,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that is full, or restarts, does not take the whole queue with it."""
    monkeypatch.setattr(connect_first, "PAUSES", (0.05, 0.05, None))
    consume(threads=1)
    with refusing_connections(connection.settings_dict["NAME"]):
        first = ended(task.enqueue("first"))
        behind = [task.enqueue(f"{number}") for number in range(20)]
        wait_until(lambda: caplog.text.count("not begun id=") > 1, "the next ones were put back")
    assert [statuses(first), first.errors[0].exception_class_path] == [["failed"], "django.db.utils.OperationalError"]
    for result in behind:
        assert set(statuses(ended(result))) <= {"deferred", "succeeded"}
    assert sorted(effects()) == sorted(f"{number}" for number in range(20))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [jobs.write, jobs.write_async, jobs.write_atomically], ids=["sync", "async", "atomic"])
def test_a_role_that_cannot_be_assumed_is_no_connection(
    consume: Consume, effects: Effects, task: AnyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django would go on without the role, in each job that follows, and when the role is there again."""
    monkeypatch.setattr(connect_first, "PAUSES", (0.05, 0.05, None))
    options = connections.settings["default"]["OPTIONS"]
    consume(threads=1)
    with monkeypatch.context() as refused:
        refused.setitem(connections.settings["default"], "OPTIONS", {**options, "assume_role": "nobody_here"})
        results = [task.enqueue(f"{number}") for number in range(10)]
        wait_until(lambda: {"failed", "deferred"} & {one for each in results for one in statuses(each)}, "one began")
        wait_until(lambda: sum("deferred" in statuses(each) for each in results) > 1, "the next ones were put back")
    for result in results:
        ended(result)
    failed = [each for each in results if "failed" in statuses(each)]
    assert len(failed) <= (0 if task is jobs.write_atomically else 1)
    assert len(effects()) == len(results) - len(failed)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [jobs.write, jobs.write_atomically], ids=["sync", "atomic"])
@pytest.mark.parametrize("who", ["a job", "a receiver"])
def test_no_job_goes_on_without_its_role_behind_one_that_swallowed_the_error(
    consume: Consume, effects: Effects, who: str, task: AnyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the first connection of the thread, of which Django has told nobody."""
    monkeypatch.setattr(connect_first, "PAUSES", (None,))
    with connection.cursor() as cursor:
        cursor.execute("select current_user")
        [[role]] = cursor.fetchall()
    monkeypatch.setitem(connections.settings, "default", with_the_role(role))
    consume(threads=1)
    monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "assume_role", "nobody_here")
    if who == "a job":
        assert statuses(ended(jobs.write_if_it_can.enqueue("x"))) == ["succeeded"]
    with listening("started", try_to_write) if who == "a receiver" else nullcontext():
        result = task.enqueue("y")
        wait_until(lambda: statuses(result), "it has ended, or was put back")
    assert statuses(result)[0] == ("deferred" if task is jobs.write_atomically else "failed")
    assert effects() == []


@pytest.mark.django_db(transaction=True)
def test_a_session_of_another_database_without_its_role_is_seen_too(
    consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings, "reports", with_the_role("nobody_here"))
    consume(threads=1)

    def first_use_of_a_thread() -> tuple[bool, bool]:
        before = has_connected()
        with suppress(psycopg.Error):
            connections["reports"].connect()
        found = before, has_connected()
        connections["reports"].close()
        return found

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(first_use_of_a_thread).result() == (False, True)


def with_the_role(name: str) -> dict[str, Any]:
    """The settings of the queue's database."""
    default = connections.settings["default"]
    return {**default, "OPTIONS": {**default["OPTIONS"], "assume_role": name}}


def try_to_write(**_: Any) -> None:
    jobs.write_if_it_can.call("of the receiver")


@pytest.mark.django_db(transaction=True)
def test_an_async_job_reads_its_earlier_attempts_when_it_has_its_connection(
    consume: Consume, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would find none of them."""
    monkeypatch.setattr(connect_first, "PAUSES", (0.05, None))
    consume(threads=1).slots.connect_first.turn_on()
    with refusing_connections(connection.settings_dict["NAME"]):
        result = jobs.follow_async.enqueue()
        wait_until(lambda: len(statuses(result)) == 2, "it was put back twice")
    assert statuses(ended(result))[:2] == ["deferred"] * 2
    assert "cannot be read" not in caplog.text


@pytest.mark.django_db(transaction=True)
def test_the_end_of_a_job_without_a_connection_does_not_wait_for_another_job(consume: Consume, diary: Diary) -> None:
    consume(threads=2)
    neighbour = slow.hold_shared_thread.enqueue("x")
    started(diary, "x")
    assert statuses(ended(slow.lose_connection.enqueue())) == ["failed"]
    assert statuses(neighbour) == []
    diary.allow("x-1")
    assert statuses(ended(neighbour)) == ["succeeded"]


@pytest.mark.django_db(transaction=True)
def test_an_end_without_a_connection_tells_its_error_though_somebody_cancels_it(
    consume: Consume, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_first, "MAX_BEHIND_SECONDS", SECONDS)
    slots = consume(threads=2).slots
    neighbour = slow.hold_shared_thread.enqueue("x")
    started(diary, "x")
    lost = slow.lose_connection.enqueue()
    wait_until(lambda: slots.shared._line, "its end asks for the connection, behind the other's call")
    slots.cancel({int(lost.id)})
    assert ended(lost).errors[0].exception_class_path == "django.db.utils.OperationalError"
    assert statuses(lost) == ["failed"]
    diary.allow("x-1")
    ended(neighbour)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("why", ["another job has lost its connection", "the worker has reconnected"])
def test_the_begin_of_an_async_job_does_not_wait_for_another_job(consume: Consume, diary: Diary, why: str) -> None:
    slots = consume(threads=2).slots
    neighbour = slow.hold_shared_thread.enqueue("x")
    started(diary, "x")
    if why == "the worker has reconnected":
        slots.reconnects += 1
    else:
        slots.connect_first.turn_on()
    assert statuses(ended(jobs.follow_async.enqueue())) == ["succeeded"]
    assert statuses(neighbour) == []
    diary.allow("x-1")
    assert statuses(ended(neighbour)) == ["succeeded"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [slow.write_in_time, slow.write_in_time_atomically], ids=["plain", "atomic"])
def test_the_timeout_of_a_job_does_not_run_while_it_waits_for_a_connection(
    consume: Consume, task: AnyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_first, "PAUSES", (slow.TIMEOUT_SECONDS, slow.TIMEOUT_SECONDS, None))
    consume(threads=1).slots.connect_first.turn_on()
    with refusing_connections(connection.settings_dict["NAME"]):
        result = task.enqueue("tea")
        wait_until(lambda: statuses(result), "its first attempt has ended")
        assert set(statuses(result)) == {"deferred"}


@pytest.mark.django_db(transaction=True)
def test_a_job_that_begins_with_a_connection_keeps_none_of_a_pool(start: Start, diary: Diary, session: Session) -> None:
    """Of a pool with one connection, which other jobs need."""
    pytest.importorskip("psycopg_pool")
    pool = {"pool": {"min_size": 1, "max_size": 1, "timeout": 2 * SECONDS}}
    worker = start("--threads", "2", PGQUEUE_TEST_DATABASE_OPTIONS=json.dumps(pool))
    for pid in session.strangers():
        session.rows("select pg_terminate_backend(%s)", pid)
    worker.says("reconnected")
    first, second = tasks.hold.enqueue("x"), tasks.hold.enqueue("y")
    started(diary, "x")
    started(diary, "y")
    for word in ("x-1", "y-1"):
        diary.allow(word)
    assert [statuses(ended(result)) for result in (first, second)] == [["succeeded"]] * 2
    assert worker.stop() == 0


@pytest.mark.django_db(transaction=True)
def test_an_async_job_that_begins_takes_no_connection_of_a_pool_from_another(
    start: Start, diary: Diary, session: Session
) -> None:
    """Which reads from a cursor of the server."""
    pytest.importorskip("psycopg_pool")
    worker = start("--threads", "2", PGQUEUE_TEST_DATABASE_OPTIONS=json.dumps({"pool": {"min_size": 1, "max_size": 1}}))
    ids = [int(ended(jobs.follow_async.enqueue()).id) for _ in range(3)]
    for pid in session.strangers():
        session.rows("select pg_terminate_backend(%s)", pid)
    worker.says("reconnected")
    reads = slow.hold_cursor.enqueue("x")
    started(diary, "x")
    for _ in range(2):  # the second would get what the first has given back
        ended(jobs.follow_async.enqueue())
    diary.allow("x-1")
    assert ended(reads).return_value[:3] == ids
    assert worker.stop() == 0


@pytest.mark.django_db(transaction=True)
def test_an_async_job_gets_no_session_that_ended_while_another_job_ran(
    consume: Consume, diary: Diary, session: Session
) -> None:
    """By idle_session_timeout: while an async job runs, their connection is kept."""
    slots = consume(threads=2, idle_seconds=0.05).slots
    neighbour = tasks.hold_on.enqueue("x")
    started(diary, "x")
    first = ended(jobs.which_session_async.enqueue()).return_value
    end(session, first)
    wait_until(lambda: slots.shared.idle_seconds() >= slots.idle_seconds, "nobody calls the shared thread")
    assert statuses(ended(jobs.which_session_async.enqueue())) == ["succeeded"]
    diary.allow("x-1")
    assert statuses(ended(neighbour)) == ["succeeded"]


@pytest.mark.django_db(transaction=True)
def test_a_server_that_answers_slowly_fails_no_job(consume: Consume, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker asks each new session for its settings, and has no end to the wait that the job would not have."""
    monkeypatch.setattr(session_reset, "MAX_ANSWER_SECONDS", 0.0)
    consume(threads=1)
    results = [ended(jobs.which_session.enqueue()) for _ in range(2)]
    assert [statuses(result) for result in results] == [["succeeded"]] * 2


@pytest.fixture
def of_few_connections(session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Says how many sessions the worker may have."""
    settings = connections.settings["default"]
    session.rows("create role of_few login password 'few' in role pg_read_all_data, pg_write_all_data")
    for name in ("USER", "PASSWORD"):
        monkeypatch.setitem(settings, name, {"USER": "of_few", "PASSWORD": "few"}[name])

    def limit(count: int) -> None:
        session.rows(f"alter role of_few connection limit {count}")

    yield limit
    session.rows("drop role of_few")


@pytest.mark.parametrize("task", [jobs.which_session, jobs.which_session_async], ids=["sync", "async"])
def test_idle_slots_leave_their_places_to_a_worker_that_lost_its_session(
    of_few_connections: Callable[[int], None],
    consume: Consume,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    task: AnyTask,
) -> None:
    """With a CONN_MAX_AGE they keep their connections. At a full server the worker waited for ever for its own."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    consumer = consume(threads=1, idle_seconds=0.05)
    ended(task.enqueue())
    of_few_connections(len(session.strangers()) - 1)
    end(session, consumer.session.connection.info.backend_pid)
    wait_until(lambda: consumer.slots.reconnects, "the worker has a session again", background.IDLE_SECONDS / 2)
    of_few_connections(-1)
    last = ended(task.enqueue())
    assert statuses(last) == ["succeeded"]
    end(session, last.return_value)


@pytest.fixture
def idled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a slot has waited for a job in vain."""
    event = threading.Event()
    for module in (threads, event_loop):
        monkeypatch.setattr(module, "close_idle_connections", event.set)
    return event


@pytest.mark.django_db(transaction=True)
def test_an_idle_slot_does_not_go_on_with_a_session_that_has_ended(
    consume: Consume, session: Session, monkeypatch: pytest.MonkeyPatch, idled: threading.Event
) -> None:
    """By idle_session_timeout, or a firewall between: Django checks it only with CONN_HEALTH_CHECKS."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    consume(threads=1, idle_seconds=0.05)
    first = ended(jobs.which_session.enqueue()).return_value
    end(session, first)
    assert idled.wait(SECONDS)
    second = ended(jobs.which_session.enqueue())
    assert statuses(second) == ["succeeded"]
    end(session, second.return_value)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", [jobs.which_session, jobs.which_session_async])
def test_an_idle_slot_does_not_go_on_with_a_connection_older_than_conn_max_age(
    consume: Consume, session: Session, monkeypatch: pytest.MonkeyPatch, idled: threading.Event, task: AnyTask
) -> None:
    """A request does not, either."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 1)
    consume(threads=1, idle_seconds=0.05)
    first = ended(task.enqueue()).return_value
    ended_at = time.monotonic()
    wait_until(lambda: time.monotonic() >= ended_at + 1, "it is too old")
    assert idled.wait(SECONDS)
    second = ended(task.enqueue()).return_value
    assert second != first
    end(session, second)


def end(session: Session, pid: int) -> None:
    session.rows("select pg_terminate_backend(%s)", pid)
    wait_until(lambda: pid not in session.strangers(), "the session has ended")


@pytest.fixture
def proxy(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    monkeypatch.setattr(session_reset, "MAX_ANSWER_SECONDS", 0.1)
    return proxy


def test_a_session_of_which_only_the_client_s_half_lasts_is_closed(proxy: Proxy) -> None:
    """It keeps the thread of all async jobs no longer than that."""

    def look_twice() -> list[bool]:
        mine = connections["default"]
        mine.ensure_connection()
        close_lost_connections()
        lasts = [mine.connection is not None]
        proxy.answers = DROP
        close_lost_connections()
        return [*lasts, mine.connection is not None]

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(look_twice).result() == [True, False]


@pytest.mark.parametrize("pooled", [False, True])
def test_the_end_of_a_job_does_not_wait_for_a_network_that_swallows_packets(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    """Long after its last statement."""
    monkeypatch.setitem(worker_connections._pooled, "default", pooled)

    def leave() -> Any:
        mine = connections["default"]
        with mine.cursor() as cursor, suppress(DatabaseError):
            cursor.execute("select nothing")
        proxy.answers = DROP
        leave_connections_clean(SimpleNamespace())  # type: ignore[arg-type]
        return mine.connection

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(leave).result() is None


@pytest.mark.django_db(transaction=True)
def test_a_session_that_cannot_be_put_back_has_lost_its_connection() -> None:
    """One that a pool lends, say: the job looks for another one, and has not failed."""
    with psycopg.connect(conninfo(), autocommit=True) as opened:
        watch(opened, pooled=False)
        state = state_of(opened)
        assert state is not None
        opened.execute("select 1")
        with socket.socket(fileno=os.dup(opened.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)
        with pytest.raises(psycopg.OperationalError):
            state.put_back(opened)


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (psycopg.OperationalError(), True),
        (psycopg.InterfaceError(), True),
        (errors.AdminShutdown(), True),
        (errors.TooManyConnections(), True),
        (errors.ConnectionFailure(), True),
        (errors.QueryCanceled(), False),
        (errors.LockNotAvailable(), False),
        (errors.DeadlockDetected(), False),
        (errors.DiskFull(), False),
        (errors.UniqueViolation(), False),
    ],
)
def test_time_outs_and_locks_are_no_errors_of_the_connection(error: psycopg.Error, *, is_one: bool) -> None:
    outer = OperationalError()
    outer.__cause__ = error
    assert connect_first.is_of_a_connection(outer) is is_one


@pytest.mark.django_db(transaction=True)
def test_a_session_that_ends_at_its_first_statement_is_opened_anew(consume: Consume) -> None:
    """A pooler lets a client in before it has a session for it, and may then have none."""
    closed: list[int] = []

    def close_first(connection: Any, **_: Any) -> None:
        if threading.current_thread().name == "slot-1" and not closed:
            closed.append(connection.connection.info.backend_pid)
            connection.connection.close()

    connection_created.connect(close_first)
    try:
        consume(threads=1)
        assert statuses(ended(jobs.add_group.enqueue("tea"))) == ["succeeded"]
    finally:
        connection_created.disconnect(close_first)
    assert len(closed) == 1
