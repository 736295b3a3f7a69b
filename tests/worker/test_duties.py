"""Duties beside the jobs: one whose connection breaks is done again soon, and not at its next usual time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from django_pgqueue.consumer.session import Session
from django_pgqueue.worker.upkeep.maintenance import AGAIN_SECONDS, Maintenance
from django_pgqueue.worker.upkeep.rollup import RollingUp
from django_pgqueue.worker.upkeep.vacuum import JOBS_BETWEEN, Vacuum
from tests.support.address import conninfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_pgqueue.consumer.background import Duty

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def broken(transactional_db: None) -> Iterator[Session]:
    """A session that the server has ended, as before a failover."""
    session = Session("default", consumer="w", pooled=False)
    session.open()
    with psycopg.connect(conninfo(), autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 10000)", [session.connection.info.backend_pid])
    yield session
    session.connection.close()


def maintenance() -> Maintenance:
    return Maintenance(history_days=30)


def vacuum() -> Vacuum:
    duty = Vacuum()
    duty.jobs = JOBS_BETWEEN
    return duty


@pytest.mark.parametrize("make", [maintenance, RollingUp, vacuum])
def test_a_duty_whose_connection_breaks_is_due_again(broken: Session, make: Callable[[], Duty]) -> None:
    duty = make()
    assert duty.due_at() <= time.monotonic()
    with pytest.raises(psycopg.OperationalError):
        duty.do(lambda: broken)
    assert duty.due_at() <= time.monotonic() + AGAIN_SECONDS


@pytest.mark.parametrize("make", [maintenance, RollingUp, vacuum])
def test_a_duty_that_gets_no_connection_is_due_again(make: Callable[[], Duty]) -> None:
    def connect() -> Session:
        raise psycopg.OperationalError

    duty = make()
    with pytest.raises(psycopg.OperationalError):
        duty.do(connect)
    assert duty.due_at() <= time.monotonic() + AGAIN_SECONDS
