"""The version of the deploy that a worker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.sql.worker.test_pgqueue_worker_seen import see

if TYPE_CHECKING:
    from tests.support.sessions import Session

VERSION = "select version, xmin::text from pgqueue_worker where id = 'a'"


def test_the_version_is_written_once(session: Session) -> None:
    see(session, "a")
    assert session.rows(VERSION)[0][0] is None
    session.call("pgqueue_worker_version", id="a", version="2024.10.1")
    before = session.rows(VERSION)
    assert before[0][0] == "2024.10.1"
    session.call("pgqueue_worker_version", id="a", version="2024.10.1")
    assert session.rows(VERSION) == before
    see(session, "a")
    assert session.rows(VERSION)[0][0] == "2024.10.1"


@pytest.mark.parametrize("version", ["x" * 101, "a\nb"])
def test_an_unprintable_version_is_refused(session: Session, version: str) -> None:
    see(session, "a")
    with pytest.raises(psycopg.errors.CheckViolation):
        session.call("pgqueue_worker_version", id="a", version=version)
