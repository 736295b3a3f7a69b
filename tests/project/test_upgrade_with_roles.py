"""A queue whose programs log in with the roles of sql/roles.sql is upgraded while they run, and goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg.errors import InsufficientPrivilege

from django_pgqueue.functions import sql_files
from tests.project.test_open_sessions import CLAIM, SEE
from tests.support.databases import empty_database, migrate, psql, session_in
from tests.support.history import commit_of, extract

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Session

RELEASE = "0.1.0"
PRODUCE = (
    "select pgqueue_message_create('{}', p_task => 't')",
    """select pgqueue_message_create_many('[{"content": {}, "task": "t"}]')""",
    "select pgqueue_message_create_unique(gen_random_uuid()::text, '{}', p_task => 't')",
    "select pgqueue_message_create_after(array[1]::bigint[], '{}', p_task => 't')",
    "select pgqueue_message_publish('nowhere', 'key', '{}')",
)


def run(database: str, file: Path) -> None:
    done = psql(database, "-f", str(file))
    assert done.returncode == 0, done.stderr


def work(producer: Session, consumer: Session) -> None:
    """Do what programs of 0.1.0 do."""
    for produce in (PRODUCE[0], *PRODUCE):
        producer.rows(produce)
    consumer.rows(SEE)
    consumer.rows("select pgqueue_message_settle()")
    taken = [row[:2] for row in consumer.rows(CLAIM)]
    assert len(taken) >= 4
    for end, token in zip(("complete", "defer", "fail"), taken, strict=False):
        consumer.rows(f"select pgqueue_message_{end}(%s, %s, 'old')", token)
    for token in taken[3:]:
        consumer.rows("select pgqueue_message_release(array[%s]::bigint[], array[%s]::integer[], 'old')", token)
    consumer.rows("select pgqueue_message_expire()")
    consumer.rows("select pgqueue_attempt_maintain()")


@pytest.mark.parametrize("by", ["migrate", "psql"])
def test_old_programs_keep_their_rights_and_no_role_gets_others(conninfo: str, tmp_path: Path, by: str) -> None:
    commit = commit_of(RELEASE)
    if commit is None:
        pytest.skip(f"the history with {RELEASE} is not here")
    extract(commit, tmp_path, "sql")
    with (
        empty_database(conninfo, "roles") as database,
        session_in(database) as producer,
        session_in(database) as consumer,
        session_in(database) as reader,
        session_in(database) as owner,
    ):
        run(database, tmp_path / "sql" / "install.sql")
        run(database, tmp_path / "sql" / "roles.sql")
        try:
            for session, role in ((producer, "producer"), (consumer, "consumer"), (reader, "reader")):
                session.rows(f"set role pgqueue_{role}")
            owner.rows("select pgqueue_exchange_declare('nowhere')")
            work(producer, consumer)
            if by == "migrate":
                migrate(database)
            else:
                run(database, sql_files.folder() / "upgrade.sql")
            assert owner.one("select pgqueue_version()") != RELEASE
            may_not(producer, reader)
            work(producer, consumer)
            run(database, sql_files.folder() / "roles.sql")
            may_not(producer, reader)
            work(producer, consumer)
            migrate(database, to=sql_files.last_migration(RELEASE))
            may_not(producer, reader)
            work(producer, consumer)
        finally:
            run(database, sql_files.folder() / "roles_drop.sql")


def may_not(producer: Session, reader: Session) -> None:
    with pytest.raises(InsufficientPrivilege):
        producer.rows("select count(*) from pgqueue_message")
    with pytest.raises(InsufficientPrivilege):
        reader.rows(PRODUCE[0])
