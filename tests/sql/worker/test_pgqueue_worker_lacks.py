"""Workers record which tasks of parked messages they do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.worker.test_pgqueue_worker_seen import see, worker

if TYPE_CHECKING:
    from tests.support.sessions import Session


def lack(session: Session, *tasks: Any, of: str = "host-1") -> None:
    session.call("pgqueue_worker_lacks", id=of, lacks=list(tasks))


def test_the_list_is_recorded_until_the_worker_lacks_nothing(session: Session) -> None:
    see(session)
    assert worker(session).lacks is None
    lack(session, "a", "b")
    see(session, slots=2)
    assert worker(session).lacks == ["a", "b"]
    lack(session)
    assert worker(session).lacks is None


def test_a_task_that_it_knows_and_whose_arguments_it_cannot_take_is_recorded_apart(session: Session) -> None:
    see(session)
    for lacks, refuses in (["a"], ["b"]), (["a"], ["c"]), ([], ["c"]):
        session.call("pgqueue_worker_lacks", id="host-1", lacks=lacks, refuses=refuses)
        assert (worker(session).lacks or [], worker(session).refuses) == (lacks, refuses)
    lack(session)
    assert worker(session).refuses is None


def test_an_unchanged_list_is_not_written_again(session: Session) -> None:
    version = "select xmin::text from pgqueue_worker"
    see(session)
    lack(session, "a")
    before = session.one(version)
    lack(session, "a")
    assert session.one(version) == before


def test_the_first_fifty_are_stored(session: Session) -> None:
    see(session)
    lack(session, *[f"t{n:02}" for n in range(60)])
    assert worker(session).lacks == [f"t{n:02}" for n in range(50)]
    session.call("pgqueue_worker_lacks", id="host-1", lacks=[], refuses=[f"t{n:02}" for n in range(60)])
    assert worker(session).refuses == [f"t{n:02}" for n in range(50)]


def test_a_worker_without_a_row_gets_no_row(session: Session) -> None:
    see(session)
    lack(session, "a", of="another")
    assert worker(session).lacks is None


@pytest.mark.parametrize("column", ["lacks", "refuses"])
def test_a_list_that_is_too_long_is_refused(session: Session, column: str) -> None:
    see(session)
    with pytest.raises(psycopg.errors.CheckViolation):
        session.call("pgqueue_worker_lacks", **{"id": "host-1", "lacks": [], column: ["x" * 20_000]})
