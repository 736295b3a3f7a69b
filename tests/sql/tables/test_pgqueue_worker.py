"""The table of workers: written by each for itself, read by those who wake one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.worker.test_pgqueue_worker_seen import see

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def test_a_worker_that_excludes_no_queue_has_an_empty_list(session: Session) -> None:
    session.rows("insert into pgqueue_worker (id, pid, slots, hostname) values ('a', 1, 1, 'host')")
    [row] = session.rows("select queues, exclude_queues, asleep_until from pgqueue_worker")
    assert tuple(row) == (None, [], None)


def test_registrations_of_workers_do_not_wait_for_each_other(connect: Connect) -> None:
    first, second = connect(autocommit=False), connect(autocommit=False)
    for session, name in ((first, "a"), (second, "b")):
        session.rows("set lock_timeout = '100ms'")
        see(session, name)
        see(session, name, asleep_ms=1000)
