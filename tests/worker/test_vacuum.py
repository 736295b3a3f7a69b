"""A worker vacuums the table of messages while it is small and much is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from django_pgqueue.consumer.session import Session as ConsumerSession
from django_pgqueue.worker.upkeep import vacuum
from django_pgqueue.worker.upkeep.vacuum import Vacuum
from tests.support.address import conninfo
from tests.support.site.tasks import nothing
from tests.support.waiting import wait_until
from tests.support.watching import ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session

pytestmark = pytest.mark.django_db(transaction=True)

COUNTS = """
select n_dead_tup, vacuum_count from pg_stat_all_tables where relid = 'pgqueue_message'::regclass
"""
LEAVE_DEAD_ROWS = """
insert into pgqueue_message (content, task, dequeue_at) select '{}', 't', 0 from generate_series(1, 50)
"""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "MIN_DEAD", 50)
    monkeypatch.setattr(vacuum, "JOBS_BETWEEN", 20)


@pytest.fixture
def consumer_session(transactional_db: None) -> Iterator[ConsumerSession]:
    session = ConsumerSession("default", consumer="w", pooled=False)
    session.open()
    with session.connection:
        yield session


@pytest.fixture
def dead(session: Session) -> int:
    """Rows that have gone, and how often the table has been vacuumed."""
    session.rows("vacuum pgqueue_message")
    session.rows(LEAVE_DEAD_ROWS)
    session.rows("delete from pgqueue_message")
    wait_until(lambda: counts(session)[0] >= 50, "the dead rows are counted")
    return counts(session)[1]


def counts(session: Session) -> tuple[int, int]:
    session.tell_statistics()
    [(dead_rows, times)] = session.rows(COUNTS)
    return dead_rows, times


def pause_seconds(duty: Vacuum) -> float:
    return duty._pause_seconds


def test_dead_rows_are_removed(session: Session, dead: int, consumer_session: ConsumerSession) -> None:
    duty = Vacuum()
    duty.do(lambda: consumer_session)
    assert counts(session) == (0, dead + 1)
    assert pause_seconds(duty) == vacuum.MIN_SECONDS


@pytest.mark.parametrize("name", ["MIN_DEAD", "MAX_LIVE"])
def test_few_dead_rows_and_a_large_table_are_left_to_autovacuum(
    session: Session, dead: int, consumer_session: ConsumerSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(vacuum, name, {"MIN_DEAD": 10**6, "MAX_LIVE": -1}[name])
    Vacuum().do(lambda: consumer_session)
    assert counts(session)[1] == dead


def test_nothing_is_tried_while_an_old_transaction_may_see_the_rows(
    session: Session, dead: int, consumer_session: ConsumerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "OLD_SECONDS", 0)
    with psycopg.connect(conninfo()) as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select 1")
        Vacuum().do(lambda: consumer_session)
        assert counts(session)[1] == dead
    Vacuum().do(lambda: consumer_session)
    assert counts(session)[1] == dead + 1


def test_a_reader_of_another_database_is_in_no_way_and_a_writer_is(
    session: Session, dead: int, consumer_session: ConsumerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "OLD_SECONDS", 0)
    with psycopg.connect(make_conninfo(conninfo(), dbname="postgres")) as other:
        other.execute("select pg_current_xact_id()")
        Vacuum().do(lambda: consumer_session)
        assert counts(session)[1] == dead
        other.rollback()
        other.execute("set transaction isolation level repeatable read")
        other.execute("select 1")
        Vacuum().do(lambda: consumer_session)
        assert counts(session) == (0, dead + 1)


def test_what_is_in_vain_is_tried_less_and_less_often(
    session: Session, dead: int, consumer_session: ConsumerSession
) -> None:
    """By a role that may not vacuum: the server says so in a warning, and the worker goes on."""
    connection: psycopg.Connection[Any] = consumer_session.connection
    session.rows("create role pgqueue_test_stranger")
    try:
        connection.execute("set role pgqueue_test_stranger")
        duty = Vacuum()
        for _ in range(9):
            duty.do(lambda: consumer_session)
        assert counts(session)[1] == dead
        assert pause_seconds(duty) == vacuum.MAX_SECONDS
        connection.execute("reset role")
        duty.do(lambda: consumer_session)
        assert pause_seconds(duty) == vacuum.MIN_SECONDS
    finally:
        connection.execute("reset role")
        session.rows("drop role pgqueue_test_stranger")


def test_a_worker_does_it_while_it_works(session: Session, consume: Consume) -> None:
    before = counts(session)[1]
    consumer = consume()
    assert consumer.upkeep.vacuum.due_at() == float("inf")

    def is_vacuumed() -> bool:
        for result in [nothing.enqueue() for _ in range(25)]:
            ended(result)
        return counts(session)[1] > before

    wait_until(is_vacuumed, "the worker vacuums")
