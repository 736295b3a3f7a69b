"""Workers go on while the queue is migrated, there and back: their sessions have plans of the former release."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from django_pgqueue.functions import sql_files
from tests.support.databases import empty_database, install, migrate, session_in
from tests.support.released_sql import is_function, replaced
from tests.support.sessions import NOON, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

# As a worker of 0.1.0 calls them.
SEE = "select pgqueue_worker_seen('old', null, '{}', 'here', 1, 1, 60000, true, false, null)"
COLUMNS = "id, attempt, max_attempts, queue, worker, content::text, state::text"
CLAIM = f"select {COLUMNS} from pgqueue_message_dequeue(null, 10, 60000, 'old', '{{}}', true)"
CLAIM_IN_A_TRANSACTION = CLAIM.replace("true)", "true, p_floor_queues => null::text[], p_brief => false)")
CLAIM_ALONE = f"select {COLUMNS} from pgqueue_quarantine_dequeue(null, 60000, 'old')"
PARKED = "select count(*) from pgqueue_message where parked_at is not null"


def old_queue(session: Session, conninfo: str) -> None:
    install(session, "0.1.0")
    migrate(conninfo, to="0001_initial")


def park_all(session: Session) -> None:
    taken = "select id, attempt from pgqueue_message_dequeue(null, 10, 60000, 'new', '{}', true)"
    while messages := session.rows(taken):
        ids, attempts = zip(*messages, strict=True)
        reasons = ["unknown"] * len(ids)
        session.rows("select pgqueue_message_park(%s, %s, 'new', %s)", [list(ids), list(attempts), reasons])


def ids_of(session: Session, claim: str) -> list[int]:
    return sorted(row[0] for row in session.rows(claim))


def test_an_old_worker_leaves_parked_messages_alone_and_takes_them_after_the_way_back(conninfo: str) -> None:
    with empty_database(conninfo, "back") as back, session_in(back) as session:
        old_queue(session, back)
        migrate(back)
        create = "select pgqueue_message_create('{}', p_task => 't', p_channel => %s)"
        ids = [session.one(create, [channel]) for channel in (None, None, "one")]
        park_all(session)
        session.rows("update pgqueue_message set alone_at = 9223372036854775807 where id = %s", [ids[1]])
        session.rows(SEE)
        assert ids_of(session, CLAIM) == ids_of(session, CLAIM_ALONE) == []
        assert session.one(PARKED) == 3

        migrate(back, to="0001_initial")
        session.rows(SEE)
        assert ids_of(session, CLAIM) == [ids[0], ids[2]]
        assert ids_of(session, CLAIM_ALONE) == [ids[1]]
        assert session.one("select count(*) from pgqueue_attempt") == 0


def test_messages_that_are_not_parked_stay_unchanged(conninfo: str) -> None:
    with empty_database(conninfo, "back") as back, session_in(back) as session:
        old_queue(session, back)
        migrate(back)
        first = session.one("select pgqueue_message_create('{}', p_task => 't')")
        session.rows("select pgqueue_message_create_after(array[%s]::bigint[], '{}', p_task => 't')", [first])
        session.rows("select pgqueue_message_create('{}', p_task => 't', p_dequeue_at => %s)", [10 * NOON])
        places = "select id, dequeue_at, in_line from pgqueue_message order by id"
        before = session.rows(places)
        migrate(back, to="0001_initial")
        assert session.rows(places) == before


def work(session: Session) -> None:
    """Everything that a worker of 0.1.0 does with rows of messages, with prepared statements."""
    session.rows(SEE)
    for channel in ("null", "'one'"):
        for ends in ("complete(%s, %s, 'old')", "defer(%s, %s, 'old')", "fail(%s, %s, 'old')", "release"):
            message = session.one(f"select pgqueue_message_create('{{}}', p_task => 't', p_channel => {channel})")
            claim = CLAIM if ends != "release" else CLAIM_IN_A_TRANSACTION
            session.rows("begin")
            taken = [row[:2] for row in session.rows(claim)]
            session.rows("commit")
            if not taken:  # a lane that has just been made
                taken = [row[:2] for row in session.rows(CLAIM)]
            assert message in [id_ for id_, _ in taken]
            for token in taken:
                if ends == "release":
                    session.rows(
                        "select pgqueue_message_release(array[%s]::bigint[], array[%s]::integer[], 'old')", token
                    )
                else:
                    session.rows(f"select pgqueue_message_{ends}", token)
    first = session.one("select pgqueue_message_create('{}', p_task => 't')")
    session.rows("select pgqueue_message_create_after(array[%s]::bigint[], '{}', p_task => 't')", [first])
    session.rows("select pgqueue_message_settle()")
    session.rows(CLAIM)
    session.rows("update pgqueue_message set unlock_at = 1 where unlock_at is not null")
    session.rows("select pgqueue_message_expire()")
    session.rows("update pgqueue_message set alone_at = 1, dequeue_at = 9223372036854775807 where id = %s", [first])
    assert ids_of(session, CLAIM_ALONE) == [first]
    session.rows("select pgqueue_message_fail(id, attempt, 'old', '{}') from pgqueue_message where worker = 'old'")
    session.rows("select pgqueue_message_cancel(array(select id from pgqueue_message))")


def test_sessions_of_workers_stay_open_while_the_queue_is_migrated(conninfo: str) -> None:
    with empty_database(conninfo, "open") as database, session_in(database) as worker:
        old_queue(worker, database)
        worker.connection.prepare_threshold = 0
        for target in (None, "0001_initial", None):
            for _ in range(6):  # a plan is kept after five
                work(worker)
            migrate(database, to=target)
        work(worker)


def returning_rows() -> Iterator[tuple[str, str]]:
    """The functions that return rows of a table that has other columns since a release, and the release."""
    for release in sql_files.releases():
        changed = [
            name
            for name in sql_files.install_order(release)
            if not is_function(name, release) and sql_files.load(name, release=release) != sql_files.current(name)
        ]
        for name in sql_files.install_order():
            text = sql_files.current(name)
            if any(re.search(rf"^\) returns (setof )?{table}$", text, re.MULTILINE) for table in changed):
                yield name, release


def test_functions_that_return_rows_of_an_altered_table_are_recreated() -> None:
    assert set(returning_rows()) <= replaced(), "sessions that are open would expect the former columns"
