"""A lake, and the database where ``manage.py qpipeline`` would say that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from django_pgqueue.management.commands.qpipeline import VARIABLE
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.sessions import Session

ELSEWHERE = """
    select exists (
        select from pg_stat_activity
        where datname is distinct from current_database() and age(backend_xid) >= age(%s::text::xid))
"""


@pytest.fixture
def options(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    monkeypatch.setenv(VARIABLE, url)
    yield {"urlVariable": VARIABLE}
    with psycopg.connect(url, autocommit=True) as connection:  # retention would wait for the lakes of tests
        connection.execute("delete from pgqueue_lake")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def settled(session: Session) -> None:
    """Waits for transactions in other databases of the server, which hold up the horizon: tests may share a server."""
    mark = session.one("select (pg_current_xact_id()::xid)::text")
    wait_until(lambda: not session.one(ELSEWHERE, [mark]), "transactions elsewhere have ended", 100)
