"""The worker name of consumers that give none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect


def test_the_name_has_the_start_of_the_session_because_pids_are_reused(connect: Connect) -> None:
    session = connect()
    begun = session.one("select extract(epoch from backend_start) from pg_stat_activity where pid = pg_backend_pid()")
    name = session.one("select pgqueue_session_worker()")
    assert name == f"session-{int(begun * 1_000_000):x}-{session.pid}"


def test_only_its_own_session_ends_messages_of_a_consumer_without_a_name(connect: Connect) -> None:
    session, other = connect(), connect()
    session.create()
    held = session.take()
    assert other.value("pgqueue_message_complete", id=held.id, attempt=held.attempt) is False
    assert held.worker == session.one("select pgqueue_session_worker()")
    assert session.value("pgqueue_message_complete", id=held.id, attempt=held.attempt) is True
