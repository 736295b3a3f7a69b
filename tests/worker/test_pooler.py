"""Workers behind PgBouncer in transaction mode, beside an application that uses the same server sessions."""

from __future__ import annotations

import subprocess
import tempfile
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connection, transaction

from django_pgqueue.backend import Call, enqueue_many
from django_pgqueue.models import Message
from example_project.development.embedded_postgres.account import Account
from example_project.development.embedded_postgres.postmaster import free_port
from tests.support.pgbouncer import MISSING, PROGRAM
from tests.support.site.tasks import (
    chain,
    hold,
    succeed_at,
    write,
    write_row,
    write_row_and_enqueue,
    write_row_on,
)
from tests.support.waiting import wait_until
from tests.support.watching import ended, started, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.compat import AnyTaskResult
    from tests.support.diary import Diary
    from tests.support.fixtures.workers import Session, Start

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

INI = """
[databases]
{name} = host={host} port={port} dbname={name} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
ignore_startup_parameters = extra_float_digits,options
"""


@pytest.fixture
def pooler(transactional_db: None) -> Iterator[str]:
    """The address of the tests' database through PgBouncer, which has two server sessions for all."""
    settings = connection.settings_dict
    account, listen = Account.for_server(), free_port()
    with tempfile.TemporaryDirectory(prefix="pgqueue-pooler-") as name:
        folder, ini = Path(name), Path(name, "pgbouncer.ini")
        values = {key: settings[key.upper()] for key in ("name", "host", "port", "user", "password")}
        ini.write_text(INI.format(**values, listen=listen))
        for path in (folder, ini):
            path.chmod(0o755)
            account.own(path)
        assert PROGRAM is not None
        process = subprocess.Popen(
            [PROGRAM, "-q", str(ini)], cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **account.run_as
        )
        try:
            address = f"postgres://{settings['USER']}:x@127.0.0.1:{listen}/{urllib.parse.quote(settings['NAME'])}"
            wait_until(lambda: answers(address), "PgBouncer listens")
            yield address
        finally:
            process.terminate()
            process.wait()


def answers(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


def settings_of(pooler: str) -> set[tuple[str, ...]]:
    """What the application finds on each of PgBouncer's server sessions."""
    with psycopg.connect(pooler, prepare_threshold=None) as one, psycopg.connect(pooler, prepare_threshold=None) as two:
        return {
            tuple(
                str(session.execute(f"show {name}".encode()).fetchone())
                for name in ("transaction_isolation", "lock_timeout", "statement_timeout", "synchronous_commit", "role")
            )
            for session in (one, two)  # each is in a transaction: they have a server session each
        }


@pytest.fixture
def defaults(session: Session) -> Iterator[None]:
    """What the database has decided for all sessions, in front of PgBouncer and behind it."""
    database = session.value("select current_database()")
    session.rows(f"alter database {database} set default_transaction_isolation = 'repeatable read'")
    session.rows(f"alter database {database} set lock_timeout = '7s'")
    yield
    session.rows(f"alter database {database} reset default_transaction_isolation")
    session.rows(f"alter database {database} reset lock_timeout")


def test_a_worker_leaves_nothing_on_the_sessions_of_a_pooler(
    start: Start, diary: Diary, session: Session, defaults: None, pooler: str
) -> None:
    before = settings_of(pooler)
    assert len(before) == 1
    worker = start("--threads", "2", "--lock-seconds", "2", options={"LISTEN": False}, DATABASE_URL=pooler)
    held = hold.enqueue("held")
    started(diary, "held")
    ended(write_row.enqueue("a row"))
    assert settings_of(pooler) == before
    lock = "select unlock_at from pgqueue_message where id = %s"
    first = session.value(lock, int(held.id))
    wait_until(lambda: session.value(lock, int(held.id)) > first, "its lock is renewed")
    diary.allow("held-1")
    ended(held)
    assert settings_of(pooler) == before
    assert worker.stop() == 0


def test_a_burst_leaves_nothing_there(start: Start, session: Session, defaults: None, pooler: str) -> None:
    before = settings_of(pooler)
    result = write.enqueue("x")
    assert start("--burst", ready=False, options={"LISTEN": False}, DATABASE_URL=pooler).ends() == 0
    assert statuses(result) == ["succeeded"]
    assert settings_of(pooler) == before


@pytest.fixture
def web(pooler: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Django's own connection goes through PgBouncer, as that of a web process."""
    parts = urllib.parse.urlsplit(pooler)
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "HOST", parts.hostname)
    monkeypatch.setitem(connection.settings_dict, "PORT", parts.port)
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    yield
    connection.close()
    monkeypatch.undo()


def test_web_and_workers_share_two_sessions_of_a_pooler(
    start: Start, diary: Diary, session: Session, pooler: str, web: None
) -> None:
    """More slots than sessions; each transaction gets another session."""
    assert str(connection.settings_dict["PORT"]) in pooler
    with transaction.atomic():
        write.enqueue("rolled back")
        transaction.set_rollback(True)
    with transaction.atomic():
        results = [write.enqueue(f"word {number}") for number in range(10)]
    enqueue_many(write, [Call(args=[f"one of many {number}"]) for number in range(20)])
    unique = [write.using(unique_key="once").enqueue("once") for _ in range(3)]
    assert len({result.id for result in unique}) == 1
    last = write.using(after=results).enqueue("after all of them")
    variables: dict[str, Any] = {"options": {"LISTEN": False}, "DATABASE_URL": pooler}
    workers = [start("--processes", "2", "--threads", "3", **variables) for _ in range(2)]
    jobs: list[Any] = [
        succeed_at.enqueue(2),
        write_row_and_enqueue.enqueue("from within"),
        write_row.enqueue("row"),
        write_row_on.enqueue("row"),
    ]
    chain.enqueue(5)
    everything: list[AnyTaskResult] = [*results, unique[0], last, *jobs]
    for result in everything:
        assert ended(result).status == "SUCCESSFUL", result.errors
    assert statuses(jobs[0]) == ["retried", "succeeded"]
    wait_until(lambda: not Message.objects.exists(), "each link has enqueued the next")
    assert diary.words().count("link") == 6
    words = [word for word in diary.words() if word != "link"]
    expected = [f"word {number}" for number in range(10)] + [f"one of many {number}" for number in range(20)]
    assert sorted(words) == sorted([*expected, "once", "from within", "after all of them"])
    assert {words.index(f"word {number}") < words.index("after all of them") for number in range(10)} == {True}
    assert session.value("select count(*) from worker_row") == 3
    for worker in workers:
        assert worker.stop() == 0
    assert "crashed" not in "".join(worker.output for worker in workers)
