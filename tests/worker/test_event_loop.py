"""Async tasks of a worker share a connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psycopg
import pytest

from django_pgqueue.worker.run.event_loop import EventLoop
from tests.support.address import conninfo
from tests.support.site import jobs
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses

if TYPE_CHECKING:
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Session


@pytest.mark.django_db(transaction=True)
def test_the_end_of_one_coroutine_keeps_the_connection_of_another(
    consume: Consume, diary: Diary, session: Session
) -> None:
    """With CONN_MAX_AGE = 0, as it is by default, Django would close the connection after each of them."""
    session.rows("""
        insert into pgqueue_worker (id, hostname, pid, slots, started_at, seen_at, exclude_queues)
        select 'w' || n, 'host', n, 1, now(), now() + interval '1 day', '{}' from generate_series(1, 200) as n
    """)
    reads = jobs.read_slowly.enqueue("go on")
    consume(threads=3)
    wait_until(diary.words, "it reads")
    for _ in range(10):
        assert ended(jobs.follow_async.enqueue()).status == "SUCCESSFUL"
    diary.allow("go on")
    assert ended(reads).return_value > 100


@pytest.mark.django_db(transaction=True)
def test_the_loop_goes_on_while_a_failed_job_counts_its_attempts(
    consume: Consume, diary: Diary, session: Session
) -> None:
    failing = jobs.fail_when_allowed.using(max_attempts=5).enqueue("fails")
    session.rows("update pgqueue_message set attempt = 1")
    neighbour = jobs.wait_until_allowed_twice.enqueue("first", "second")
    consume(threads=2)
    wait_until(lambda: {"fails", "first"} <= set(diary.words()), "both run")
    with psycopg.connect(conninfo()) as locker:
        locker.execute("lock table pgqueue_attempt")
        diary.allow("fails")
        wait_until(lambda: session.rows(LOOKS_BACK), "it looks back")
        diary.allow("first")
        wait_until(lambda: "second" in diary.words(), "the loop goes on")
    diary.allow("second")
    assert statuses(ended(neighbour)) == ["succeeded"]
    assert statuses(ended(failing)) == [*["retried"] * 3, "failed"]


LOOKS_BACK = "select pid from pg_locks where relation = 'pgqueue_attempt'::regclass and not granted"


def test_a_late_order_to_stop_cuts_no_cleaning_short() -> None:
    its = asyncio.new_event_loop()
    loop = EventLoop(SimpleNamespace())  # type: ignore[arg-type]
    cleaning = its.create_task(asyncio.sleep(0.05))
    loop._cleaning.add(cleaning)
    its.call_soon(its.stop)
    loop._close(its)
    assert cleaning.done()
    assert its.is_closed()
