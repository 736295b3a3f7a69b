"""Async tasks of a worker share a connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psycopg
import pytest

from django_pgqueue.worker.run import execution, result
from django_pgqueue.worker.run.event_loop import EventLoop
from tests.support.address import conninfo
from tests.support.site import jobs, slow
from tests.support.waiting import wait_until
from tests.support.watching import ended, statuses

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask
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
@pytest.mark.parametrize("fails", [jobs.fail_when_allowed.using(max_attempts=5), jobs.fail_by_its_errors])
def test_the_loop_goes_on_while_a_failed_job_looks_back(
    consume: Consume, diary: Diary, session: Session, fails: AnyTask
) -> None:
    failing = fails.enqueue("fails")
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


@pytest.mark.django_db(transaction=True)
def test_jobs_that_fail_together_look_back_on_one_session(consume: Consume, diary: Diary, session: Session) -> None:
    failing = [jobs.fail_by_its_errors.enqueue("fail") for _ in range(5)]
    session.rows("update pgqueue_message set attempt = 3")
    consume(threads=5)
    wait_until(lambda: diary.words().count("fail") == len(failing), "all run")
    with psycopg.connect(conninfo()) as locker:
        locker.execute("lock table pgqueue_attempt")
        diary.allow("fail")
        wait_until(lambda: len(result._asked) == len(failing) and session.rows(LOOKS_BACK), "they look back")
        [[pid]] = session.rows(LOOKS_BACK)
    assert [statuses(ended(job)) for job in failing] == [["retried", "failed"]] * 5
    wait_until(lambda: not session.rows("select from pg_stat_activity where pid = %s", pid), "its session is closed")


@pytest.mark.django_db(transaction=True)
def test_a_job_that_says_when_it_wants_to_run_does_not_look_back(
    consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(execution, "alook_back")
    consume(threads=1)
    assert statuses(ended(jobs.ask_again_at_once.enqueue())) == [*["retried"] * 4, "failed"]


LOOKS_BACK = """
select pid from pg_locks join pg_stat_activity using (pid)
where relation = 'pgqueue_attempt'::regclass and not granted and query like 'SELECT "pgqueue_attempt"%%'
"""
"""The worker's maintenance may wait for the table, too."""


@pytest.mark.django_db(transaction=True)
def test_a_job_ends_whose_call_raises_what_no_future_takes(consume: Consume) -> None:
    consume(threads=1)
    [error] = ended(slow.take_the_next.enqueue()).errors
    assert error.exception_class is RuntimeError
    assert "StopIteration" in error.traceback


def test_a_late_order_to_stop_cuts_no_cleaning_short() -> None:
    its = asyncio.new_event_loop()
    loop = EventLoop(SimpleNamespace())  # type: ignore[arg-type]
    cleaning = its.create_task(asyncio.sleep(0.05))
    loop._cleaning.add(cleaning)
    its.call_soon(its.stop)
    loop._close(its)
    assert cleaning.done()
    assert its.is_closed()
