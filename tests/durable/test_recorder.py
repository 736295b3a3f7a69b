"""Steps of several jobs are recorded in one commit, and no job feels the trouble of another."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import DataError, OperationalError, connection, connections

from django_pgqueue import functions
from django_pgqueue.durable import recorder as recorder_module
from django_pgqueue.durable.recorder import StepRecorder
from django_pgqueue.functions import NewStep
from django_pgqueue.models import Step
from tests.durable import tasks
from tests.support.address import conninfo
from tests.support.waiting import SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = 8


@pytest.fixture
def recorder() -> StepRecorder:
    return StepRecorder()


@pytest.fixture
def held() -> list[NewStep]:
    """A step of each of some jobs that a worker has."""
    for _ in range(JOBS):
        tasks.three_steps.enqueue()
    taken = functions.message_dequeue(connection, limit=JOBS, worker="w", tasks=True)
    return [NewStep(one.id, one.attempt, one.worker, "one", "1", "step", "done", None) for one in taken]


@pytest.fixture
def closed() -> Iterator[psycopg.Connection]:
    """Nobody can record a step until this session commits."""
    with psycopg.connect(conninfo()) as session:
        session.execute("lock table pgqueue_step in share mode")
        yield session


@pytest.fixture
def record(recorder: StepRecorder) -> Iterator[Callable[[list[NewStep]], list[Future[bool]]]]:
    """Records each step in a thread of its own: the first, and then the others, which wait behind it."""
    with ThreadPoolExecutor(JOBS) as pool:

        def one(step: NewStep) -> bool:
            try:
                return recorder.record(connection, step)
            finally:
                connections.close_all()

        def all_of_them(steps: list[NewStep]) -> list[Future[bool]]:
            first = pool.submit(one, steps[0])
            wait_until(blocked, "the first waits for the table")
            others = [pool.submit(one, step) for step in steps[1:]]
            wait_until(lambda: len(recorder._waiting) == len(others), "the others wait for the first")
            return [first, *others]

        yield all_of_them


def blocked() -> list[int]:
    sql = (
        "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like '%%pgqueue_step_record_many%%'"
    )
    with psycopg.connect(conninfo(), autocommit=True) as session:
        return [pid for (pid,) in session.execute(sql).fetchall()]


def commits() -> list[int]:
    """How many steps each transaction has recorded."""
    sql = "select count(*) from pgqueue_step group by xmin::text order by 1"
    with psycopg.connect(conninfo(), autocommit=True) as session:
        return [count for (count,) in session.execute(sql).fetchall()]


def test_steps_that_end_during_a_commit_share_the_next_one(
    held: list[NewStep], closed: psycopg.Connection, record: Callable[[list[NewStep]], list[Future[bool]]]
) -> None:
    found = record(held)
    closed.commit()
    assert [one.result(SECONDS) for one in found] == [True] * JOBS
    assert commits() == [1, JOBS - 1]


def test_a_lost_attempt_does_not_hold_up_the_others(
    held: list[NewStep], closed: psycopg.Connection, record: Callable[[list[NewStep]], list[Future[bool]]]
) -> None:
    late, stranger = held[2]._replace(attempt=7), held[3]._replace(worker="another")
    found = record([*held[:2], late, stranger, *held[4:]])
    closed.commit()
    assert [one.result(SECONDS) for one in found] == [place not in (2, 3) for place in range(JOBS)]
    assert recorded() == {one.message_id for one in held} - {late.message_id, stranger.message_id}


def test_a_locked_message_does_not_hold_up_the_others(
    held: list[NewStep], closed: psycopg.Connection, record: Callable[[list[NewStep]], list[Future[bool]]]
) -> None:
    with psycopg.connect(conninfo()) as session:
        session.execute("select from pgqueue_message where id = %s for update", [held[2].message_id])
        found = record(held)
        closed.commit()
        assert [one.result(SECONDS) for one in found] == [place != 2 for place in range(JOBS)]


def test_a_result_that_postgresql_refuses_is_the_error_of_its_own_job(
    held: list[NewStep], closed: psycopg.Connection, record: Callable[[list[NewStep]], list[Future[bool]]],
    recorder: StepRecorder,
) -> None:  # fmt: skip
    bad = held[2]._replace(result='"\\u0000"')
    found = record([*held[:2], bad, *held[3:]])
    closed.commit()
    assert [one.result(SECONDS) for one in found] == [True] + [False] * (JOBS - 1)
    assert recorded() == {held[0].message_id}
    assert all(recorder.record(connection, one) for one in held[3:]), "each records its own"
    with pytest.raises(DataError):
        recorder.record(connection, bad)


def test_a_connection_that_breaks_is_the_error_of_its_own_job(
    held: list[NewStep], closed: psycopg.Connection, record: Callable[[list[NewStep]], list[Future[bool]]]
) -> None:
    first, *others = record(held)
    [pid] = blocked()
    with psycopg.connect(conninfo(), autocommit=True) as session:
        session.execute("select pg_terminate_backend(%s)", [pid])
    with pytest.raises(OperationalError):
        first.result(SECONDS)
    closed.commit()
    assert all(one.result(SECONDS) for one in others)
    assert recorded() == {one.message_id for one in held[1:]}


@pytest.mark.parametrize("how", ["by hand", "without autocommit"])
def test_a_transaction_that_a_step_has_left_open_takes_no_step_of_others(
    held: list[NewStep], recorder: StepRecorder, how: str
) -> None:
    if how == "by hand":
        connection.cursor().execute("begin")
    else:
        connection.set_autocommit(False)
    try:
        assert recorder.record(connection, held[0]) is False
    finally:
        connection.close()
    assert recorder.record(connection, held[0]) is True


def test_more_than_one_statement_may_hold_are_recorded_by_several(
    held: list[NewStep], closed: psycopg.Connection, record: Callable[[list[NewStep]], list[Future[bool]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(recorder_module, "MAX_STEPS", 3)
    monkeypatch.setattr(recorder_module, "MAX_CHARACTERS", 10)
    found = record([*held[:5], held[5]._replace(result=f'"{"x" * 20}"'), *held[6:]])
    closed.commit()
    assert all(one.result(SECONDS) for one in found)
    assert sorted(recorded()) == sorted(one.message_id for one in held)
    assert len(commits()) >= 4


def test_a_thread_that_does_not_come_back_holds_up_no_other_job(
    held: list[NewStep], recorder: StepRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "PATIENCE_SECONDS", 0.05)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(execute: Any, *statement: Any) -> Any:
        hangs.set()
        goes_on.wait(SECONDS)
        return execute(*statement)

    def hanging() -> bool:
        try:
            with connection.execute_wrapper(hang):
                return recorder.record(connection, held[0])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(hanging)
        assert hangs.wait(SECONDS)
        try:
            assert [recorder.record(connection, one) for one in held[1:]] == [False] * (JOBS - 1)
            assert recorder._waiting == [], "each records its own"
        finally:
            goes_on.set()
        assert first.result(SECONDS)
    assert recorder.record(connection, held[1]), "and then they share commits again"
    assert recorded() == {held[0].message_id, held[1].message_id}


def recorded() -> set[int]:
    return set(Step.objects.values_list("message_id", flat=True))
