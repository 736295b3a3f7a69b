"""Workers say that they are alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.sessions import Session


def see(session: Session, worker: str = "host-1", **changes: Any) -> None:
    known: dict[str, Any] = {"queues": None, "exclude_queues": [], "hostname": "host", "pid": 7, "slots": 4}
    session.call("pgqueue_worker_seen", id=worker, **{**known, **changes})


def worker(session: Session, worker_id: str = "host-1") -> Any:
    [row] = session.rows("select * from pgqueue_worker where id = %s", [worker_id])
    return row


def test_the_first_call_registers_the_worker(session: Session) -> None:
    session.set_clock(NOON)
    see(session, queues=["mail"], exclude_queues=["spam"])
    row = worker(session)
    assert (row.queues, row.exclude_queues, row.hostname, row.pid, row.slots) == (["mail"], ["spam"], "host", 7, 4)
    assert row.asleep_until is None
    assert row.seen_at.timestamp() * 1000 == NOON


def test_later_calls_renew_when_it_was_seen_and_keep_when_it_started(session: Session) -> None:
    session.set_clock(NOON)
    see(session)
    started_at = worker(session).started_at
    session.set_clock(NOON + 5000)
    see(session, slots=2)
    row = worker(session)
    assert (row.seen_at.timestamp() * 1000, row.slots, row.started_at) == (NOON + 5000, 2, started_at)


def test_asleep_ms_marks_the_worker_asleep_and_its_absence_awake(session: Session) -> None:
    session.set_clock(NOON)
    see(session, asleep_ms=1500)
    assert worker(session).asleep_until == NOON + 1500
    see(session)
    assert worker(session).asleep_until is None


def test_a_worker_runs_tasks_by_default(session: Session) -> None:
    see(session, "a")
    see(session, "b", tasks=False)
    assert (worker(session, "a").tasks, worker(session, "b").tasks) == (True, False)


def test_a_worker_without_a_name_is_refused(session: Session) -> None:
    with pytest.raises(psycopg.errors.NotNullViolation):
        session.call(
            "pgqueue_worker_seen", id=None, queues=None, exclude_queues=[], hostname="host", pid=1, slots=1, asleep_ms=1
        )
