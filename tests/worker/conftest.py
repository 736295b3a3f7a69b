"""Real workers on the tests' database, and a look at what they did."""

from __future__ import annotations

import json
import os
import urllib.parse
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from example_project.database import database_url
from tests.support.sessions import IDLE_SESSIONS
from tests.support.waiting import wait_until
from tests.support.diary import FOLDER, Diary
from tests.support.processes import QWorker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Start(Protocol):
    def __call__(
        self,
        *arguments: str,
        ready: bool = True,
        options: dict[str, Any] | None = None,
        **variables: str,
    ) -> QWorker: ...


@pytest.fixture
def diary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Diary:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return Diary(tmp_path)


@pytest.fixture
def environment(transactional_db: None, diary: Diary) -> dict[str, str]:
    """Variables for processes that join the tests' database."""
    name = connection.settings_dict["NAME"]
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
        "DATABASE_URL": urllib.parse.urlsplit(database_url("test"))._replace(path=f"/{name}").geturl(),
        "PGQUEUE_TEST_DATABASE": name,
    }


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path, session: Session, rows: str) -> Iterator[Start]:
    """Starts workers.  None outlives the test."""
    workers: list[QWorker] = []

    def start_worker(
        *arguments: str,
        ready: bool = True,
        options: dict[str, Any] | None = None,
        **variables: str,
    ) -> QWorker:
        """Starts a worker and, if it should be ``ready``, waits until its first process is."""
        worker = QWorker(
            arguments,
            environment={**environment, "PGQUEUE_TEST_OPTIONS": json.dumps(options or {}), **variables},
            output=tmp_path / f"worker-{len(workers)}",
        )
        workers.append(worker)
        if ready:
            worker.says("started worker=")
        return worker

    yield start_worker
    for worker in workers:
        worker.kill()
    # Who is still there could hold up the next test's TRUNCATE, or write after it.
    wait_until(lambda: not session.strangers(), "the workers' sessions are closed")


class Session:
    """A connection beside Django's, which sees what is committed and commits what it does."""

    def __init__(self, opened: psycopg.Connection[Any]) -> None:
        self.connection = opened
        connection.ensure_connection()
        self.ours = [opened.info.backend_pid, connection.connection.info.backend_pid]

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def value(self, sql: str, *parameters: Any) -> Any:
        [[value]] = self.rows(sql, *parameters)
        return value

    def strangers(self) -> list[int]:
        """The server processes of those sessions on this database that are not this process's: the workers'."""
        found = self.rows(
            "select pid from pg_stat_activity where datname = current_database() and pid <> all (%s) "
            "and application_name <> %s",
            self.ours,
            IDLE_SESSIONS,
        )
        return [pid for [pid] in found]


@pytest.fixture
def session(transactional_db: None) -> Iterator[Session]:
    with psycopg.connect(conninfo(), autocommit=True) as opened:
        yield Session(opened)


@pytest.fixture
def rows(session: Session) -> Iterator[str]:
    """The table that ``write_row`` writes to."""
    session.rows("create table worker_row (word text not null)")
    yield "worker_row"
    session.rows("drop table worker_row")


def conninfo() -> str:
    settings: dict[str, Any] = connection.settings_dict
    return make_conninfo(
        dbname=settings["NAME"],
        user=settings["USER"],
        password=settings["PASSWORD"],
        host=settings["HOST"],
        port=settings["PORT"] or None,
    )
