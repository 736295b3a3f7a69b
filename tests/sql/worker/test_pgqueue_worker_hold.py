"""The advisory lock that shows that a worker lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.words import hold, see, worker
from tests.support.sessions import eventually

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


HOLDERS = """
select pid from pg_locks where locktype = 'advisory' and objsubid = 1
and (classid::bigint << 32) | objid::bigint = pgqueue_worker_number(%s)
"""


def test_several_sessions_of_a_worker_hold_it(connect: Connect) -> None:
    session = connect()
    with hold(connect, "w") as first, hold(connect, "w") as second:
        assert set(session.column(HOLDERS, ["w"])) == {first.pid, second.pid}
    eventually(lambda: not session.column(HOLDERS, ["w"]))


def test_it_outlasts_the_transaction_that_took_it(connect: Connect) -> None:
    session, other = connect(autocommit=False), connect()
    assert session.value("pgqueue_worker_hold", id="w") is True
    session.rollback()
    assert other.column(HOLDERS, ["w"]) == [session.pid]
    session.connection.close()


def test_it_waits_for_nobody(connect: Connect) -> None:
    """Somebody holds it alone: the worker does without, and the locks of its messages decide."""
    stranger, session = connect(), connect()
    stranger.rows("select pg_advisory_lock(pgqueue_worker_number('w'))")
    session.rows("set lock_timeout = '1ms'")
    assert session.value("pgqueue_worker_hold", id="w") is False
    stranger.connection.close()


def test_no_name_is_no_lock(session: Session) -> None:
    assert session.value("pgqueue_worker_hold", id=None) is False


@pytest.mark.parametrize("held", [True, False])
def test_the_row_says_on_which_server_it_is_held(session: Session, held: bool) -> None:
    started = session.one("select pgqueue_to_epoch(pg_postmaster_start_time())")
    see(session, held=held)
    assert worker(session).server_started_at == (started if held else None)
    see(session, held=not held)
    assert worker(session).server_started_at == (None if held else started)
