"""What the tests of the features share: the workers of tests.worker, one inside of this process, and a table."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest
from asgiref.sync import SyncToAsync
from django.db import connections

from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.waiting import SECONDS, wait_until
from tests.worker.conftest import conninfo, diary, environment, rows, session, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.worker.run.threads import Slots
    from tests.worker.conftest import Session
    from tests.support.diary import Diary

__all__ = ["diary", "environment", "rows", "session", "start"]


class Consume(Protocol):
    def __call__(self, **settings: Any) -> WorkerProcess: ...


@pytest.fixture
def consume(transactional_db: None, diary: Diary, session: Session) -> Iterator[Consume]:
    """Starts consumers, each of which is what runs in a worker's process, as threads of this one."""
    threads: list[tuple[WorkerProcess, threading.Thread]] = []

    def start_consumer(**settings: Any) -> WorkerProcess:
        consumer = WorkerProcess(WorkerSettings(**{"threads": 2, "grace_seconds": 1, "idle_seconds": 0.5, **settings}))
        thread = threading.Thread(target=consumer.run, name=f"consumer-{len(threads)}")
        threads.append((consumer, thread))
        thread.start()
        wait_until(lambda: consumer.is_started or not thread.is_alive(), "the consumer is ready")
        return consumer

    yield start_consumer
    for consumer, thread in threads:
        consumer.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()
        close_event_loop(consumer.slots)
    wait_until(lambda: not session.strangers(), "the sessions of the slots are closed")


def close_event_loop(slots: Slots) -> None:
    """A worker's process takes it along when it ends."""
    loops = [coroutines._loop for coroutines in slots._loops() if coroutines._loop is not None]
    for loop in loops:
        wait_until(lambda: not loop.is_running(), "the event loop has stopped")  # noqa: B023 -- called here
        loop.close()
    if loops:
        SyncToAsync.single_thread_executor.submit(connections.close_all).result()


class Effects:
    """What jobs have written and committed: a table without any constraint, in which a second effect would show."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __call__(self) -> list[str]:
        return [word for [word] in self.session.rows("select word from feature_effect order by word")]

    def writers(self) -> list[int]:
        """The server processes that have written to it and not committed yet."""
        found = self.session.rows(
            "select pid from pg_locks where relation = 'feature_effect'::regclass and mode = 'RowExclusiveLock'"
        )
        return [pid for [pid] in found]


@pytest.fixture
def effects(session: Session) -> Iterator[Effects]:
    session.rows("drop table if exists feature_effect")
    session.rows("create table feature_effect (word text not null)")
    yield Effects(session)
    session.rows("set lock_timeout = '20s'")
    session.rows("drop table feature_effect")


@contextmanager
def another_transaction() -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's transaction, which is rolled back unless it commits."""
    with psycopg.connect(conninfo()) as connection:
        yield connection
        connection.rollback()
