"""Messages of workers that are gone are taken away soon: of those whose session is gone, and that were not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.functions.worker import IS_MISSED
from tests.sql.words import hold, see
from tests.support.cost import cost
from tests.support.sessions import eventually, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

LONG_MS = 1_000_000_000


def expire(session: Session, *, silent_ms: int = 0, **parameters: Any) -> int:
    """With 0, whoever was not seen a moment ago was not seen."""
    lost: int = session.value("pgqueue_worker_expire", silent_ms=silent_ms, **parameters)
    return lost


def workers(session: Session) -> list[str]:
    return session.column("select id from pgqueue_worker order by id")


def gone(
    session: Session, name: str = "gone", *, messages: int = 1, task: str | None = "t", **changes: Any
) -> list[Any]:
    """A worker that had a session once, and what it holds."""
    see(session, name, held=True, **changes)
    session.create_batch(messages, task=task)
    return session.dequeue(messages, tasks=task is not None, worker=name)


def test_messages_of_a_worker_without_a_session_are_lost(connect: Connect) -> None:
    session = connect()
    gone(session, messages=2)
    assert expire(session, silent_ms=6000) == 0, "it was seen a moment ago"
    assert expire(session) == 2
    assert [(m.attempt, m.lost, m.worker, m.alone_at) for m in session.messages()] == [(1, 1, None, None)] * 2
    assert [(end.status, end.worker) for end in session.history()] == [("lost", "gone")] * 2
    assert session.history()[0].error_message == (
        "worker gone is gone: no session of it is left, and it was not seen for 0 s (loss 1 of 20)"
    )
    assert workers(session) == []


def test_raw_messages_of_a_listener_without_a_session_are_lost(connect: Connect) -> None:
    session = connect()
    gone(session, task=None, tasks=False)
    assert expire(session) == 1
    assert session.take().attempt == 2


def test_a_message_that_was_lost_twice_in_a_row_is_quarantined(connect: Connect) -> None:
    session = connect()
    gone(session)
    expire(session)
    see(session, "again", held=True)
    session.take(tasks=True, worker="again")
    assert expire(session) == 1
    [message] = session.messages()
    assert (message.lost, message.alone_at is not None) == (2, True)


def test_the_late_end_of_a_worker_that_lives_after_all_is_refused(connect: Connect) -> None:
    session = connect()
    [held] = gone(session)
    expire(session)
    assert session.value("pgqueue_message_complete", **token(held)) is False
    assert session.ids("pgqueue_message_heartbeat", ids=[held.id], attempts=[1], worker="gone") == []


def test_a_worker_whose_session_lasts_is_alive_however_long_it_is_silent(connect: Connect) -> None:
    session = connect()
    with hold(connect, "silent"):
        gone(session, "silent")
        session.rows("update pgqueue_worker set seen_at = seen_at - interval '1 day'")
        assert expire(session, return_ms=0) == 0
        assert workers(session) == ["silent"]
    assert eventually(lambda: expire(session, return_ms=0)) == 1


@pytest.mark.parametrize("started_at", ["server_started_at", "server_started_at - 1000"], ids=["this start", "another"])
def test_a_worker_that_died_while_the_clock_was_ahead_is_gone(connect: Connect, started_at: str) -> None:
    session = connect()
    gone(session)
    session.rows("update pgqueue_message set unlock_at = unlock_at + 9000000000")
    for ahead, lost in [("9 minutes", 0), ("100 days", 1)]:
        session.rows(
            f"update pgqueue_worker set server_started_at = {started_at}, "
            f"seen_at = clock_timestamp() + interval '{ahead}'"
        )
        assert session.column(f"select {IS_MISSED} from pgqueue_worker w") == [bool(lost)]
        assert expire(session, silent_ms=6000, return_ms=0) == lost
    assert workers(session) == []


def test_a_stranger_who_holds_the_lock_delays_only(connect: Connect) -> None:
    """Alone or shared: until the lock of the message ends, which decides then."""
    session, stranger = connect(), connect()
    [held] = gone(session)
    stranger.rows("select pg_advisory_lock(pgqueue_worker_number('gone'))")
    assert expire(session) == 0
    session.rows("update pgqueue_message set unlock_at = pgqueue_now()")
    assert session.take(tasks=True, worker="other").id == held.id
    stranger.connection.close()


def test_the_lock_of_another_database_or_with_two_numbers_is_another_one(connect: Connect) -> None:
    session, stranger = connect(), connect()
    gone(session)
    stranger.rows(
        "select pg_advisory_lock((n >> 32)::integer, ((n << 32) >> 32)::integer) "
        "from (select pgqueue_worker_number('gone')) as one (n)"
    )
    assert expire(session) == 1
    stranger.connection.close()


def test_a_worker_that_never_held_the_lock_is_left_to_the_locks_of_its_messages(connect: Connect) -> None:
    """Behind a pooler, or of an earlier release."""
    session = connect()
    see(session, "pooled")
    session.create(task="t")
    session.take(tasks=True, worker="pooled")
    session.rows("update pgqueue_worker set seen_at = seen_at - interval '1 hour'")
    assert expire(session, return_ms=0) == 0
    assert session.messages()[0].worker == "pooled"
    assert workers(session) == ["pooled"]


def test_messages_of_a_worker_without_a_row_are_left(connect: Connect) -> None:
    session = connect()
    session.create(task="t")
    session.take(tasks=True, worker="nobody")
    assert expire(session) == 0


def test_a_worker_that_rests_is_alive(connect: Connect) -> None:
    session = connect()
    see(session, "rests", held=True)
    session.rows("update pgqueue_worker set silent_until = pgqueue_now() + 600000")
    assert expire(session) == 0
    assert workers(session) == ["rests"]


BEFORE = "seen_at = pg_postmaster_start_time() - interval '1 minute'"
ELSEWHERE = "server_started_at = server_started_at - 1000000"


@pytest.mark.parametrize(
    ("row", "return_ms", "lost"),
    [
        pytest.param(BEFORE, LONG_MS, 0, id="seen before a crash of the server, and it may still come back"),
        pytest.param(BEFORE, 0, 1, id="seen before a crash of the server, long ago"),
        pytest.param(f"{BEFORE}, {ELSEWHERE}", LONG_MS, 0, id="seen before a restart, and it may still come back"),
        pytest.param(f"{BEFORE}, {ELSEWHERE}", 0, 1, id="seen before a restart, long ago"),
        pytest.param(ELSEWHERE, 0, 0, id="seen on another server: this one was promoted"),
        pytest.param("problem = null", LONG_MS, 1, id="seen on this server since it runs"),
    ],
)
def test_after_a_restart_workers_have_time_to_come_back(connect: Connect, row: str, return_ms: int, lost: int) -> None:
    session = connect()
    gone(session)
    session.rows(f"update pgqueue_worker set {row}")
    assert expire(session, return_ms=return_ms) == lost


def test_it_waits_for_no_row_and_looks_again_at_what_was_locked(connect: Connect) -> None:
    other, session = connect(autocommit=False), connect()
    first, second = gone(session, messages=2)
    other.rows("select from pgqueue_message where id = %s for update", [first.id])
    other.rows("select from pgqueue_worker for update")
    session.rows("set lock_timeout = '1s'")
    assert expire(session) == 1
    assert workers(session) == ["gone"]
    other.rollback()
    assert expire(session) == 1
    assert workers(session) == []
    assert [end.message_id for end in session.history()] == [second.id, first.id]


def test_each_call_takes_a_limited_number(connect: Connect) -> None:
    session = connect()
    gone(session, messages=5)
    assert [expire(session, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert workers(session) == []


def test_only_the_messages_of_the_dead_are_taken(connect: Connect) -> None:
    session = connect()
    with hold(connect, "living"):
        [living] = gone(session, "living")
        gone(session)
        assert expire(session) == 1
        assert [m.id for m in session.messages() if m.worker == "living"] == [living.id]
        assert workers(session) == ["living"]


def test_a_look_takes_no_lock_that_a_worker_or_another_look_could_meet(connect: Connect) -> None:
    session, other, late = connect(autocommit=False), connect(autocommit=False), connect()
    gone(late)
    late.rows("update pgqueue_message set unlock_at = unlock_at + 1")
    assert expire(session) == 1
    assert expire(other) == 0, "its rows are locked"
    assert late.value("pgqueue_worker_hold", id="gone") is True
    late.connection.close()
    session.rollback()
    assert eventually(lambda: expire(other)) == 1


def test_the_locked_messages_are_found_by_their_index(connect: Connect) -> None:
    session = connect()
    gone(session, messages=2)
    session.create_batch(2000, task="t")
    taken = cost(session, "select pgqueue_worker_expire(0)")
    assert taken.entries["pgqueue_message_locked_ix"] <= 10
    assert "pgqueue_message" not in taken.read


def test_a_look_reads_no_message_while_nobody_is_gone(connect: Connect) -> None:
    session = connect()
    with hold(connect, "living"):
        gone(session, "living")
        for silent_ms in (0, 6000):
            assert not {name for name in cost(session, f"select pgqueue_worker_expire({silent_ms})").read
                        if name.startswith("pgqueue_message")}  # fmt: skip
