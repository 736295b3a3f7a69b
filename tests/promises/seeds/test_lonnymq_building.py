"""LonnyMQ's first article, "Building LonnyMQ": the queue as SQL functions; FIFO, scheduling, five tries at priority."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from django_pgqueue.queue import Queue
from tests.promises.seeds.faces import SqlQueue
from tests.promises.seeds.test_lonnymq_fifo_scheduling import received
from tests.support.cost import Cost, cost
from tests.support.sessions import NOON, concurrently, eventually

if TYPE_CHECKING:
    from tests.promises.seeds.conftest import Clock, Face
    from tests.support.fixtures.sessions import Connect

READY_INDEX = "pgqueue_message_ready_ix"
pytestmark = pytest.mark.django_db(transaction=True)


# Why PostgreSQL


def test_queue_actions_happen_in_lock_step_with_the_business_logic() -> None:
    def sign_up(name: str, *, fails: bool) -> None:
        with transaction.atomic():
            user = User.objects.create(username=name)
            Queue("mail").send({"welcome": user.pk})
            if fails:
                raise RuntimeError

    sign_up("anna", fails=False)
    with pytest.raises(RuntimeError):
        sign_up("bert", fails=True)

    messages = Queue("mail").receive_many(10)
    assert [message.content for message in messages] == [{"welcome": User.objects.get().pk}]


def test_the_state_of_the_queue_is_read_with_plain_sql(queue: Face, another: SqlQueue, clock: Clock) -> None:
    clock(NOON)
    queue.send_many(["runs", "ready", "ready"])
    queue.send("scheduled", dequeue_at=NOON + 1)
    queue.receive()
    counted = another.session.rows("""
        select case when unlock_at is not null then 'running'
                    when dequeue_at > pgqueue_now() then 'scheduled'
                    else 'ready' end,
               count(*)
        from pgqueue_message where queue = 'mail' group by 1 order by 1
    """)
    assert [tuple(row) for row in counted] == [("ready", 2), ("running", 1), ("scheduled", 1)]


def test_a_client_needs_no_transactions_and_one_statement_for_each_action(another: SqlQueue) -> None:
    """The session is in autocommit: each statement stands alone, and each does the whole thing."""
    session = another.session
    session.rows("""select pgqueue_message_create('{"n": 1}', 'mail')""")
    [held] = session.rows("select id, attempt, worker, content from pgqueue_message_dequeue('{mail}')")
    assert held.content == {"n": 1}
    assert session.one("select pgqueue_message_complete(%s, %s, %s)", [held.id, held.attempt, held.worker]) is True


# A simple FIFO queue


def test_first_in_first_out(queue: Face) -> None:
    for n in range(20):
        queue.send(n)
    assert received(queue, 21) == [*range(20), None]


def test_consumers_at_once_do_not_get_the_same_and_do_not_wait(queue: Face, connect: Connect) -> None:
    queue.send_many(list(range(200)))
    consumers = [SqlQueue(connect(), "mail") for _ in range(4)]

    def consume(consumer: SqlQueue) -> list[object]:
        contents = []
        while (message := consumer.receive()) is not None:
            contents.append(message.content)
        return contents

    got = concurrently([lambda c=c: consume(c) for c in consumers])  # type: ignore[misc]
    assert sorted(content for contents in got for content in contents) == list(range(200))  # type: ignore[type-var]
    assert all(contents == sorted(contents) for contents in got), "each of them in order"  # type: ignore[type-var]


def test_order_is_that_of_ids_and_no_clock_that_goes_on_within_a_transaction_has_a_say(connect: Connect) -> None:
    producer = connect(autocommit=False)
    began = producer.one("select pgqueue_to_epoch(now())")
    ids = [producer.create("first")]
    eventually(lambda: producer.one("select pgqueue_to_epoch(clock_timestamp())") > began + 2)
    ids.append(producer.create("second"))
    producer.commit()
    messages = producer.messages()
    assert [message.id for message in messages] == ids
    assert {message.dequeue_at for message in messages} == {began}


# Scheduling


@pytest.mark.parametrize(
    ("run_after", "dequeue_at"),
    [
        (dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC), NOON),
        (dt.datetime(2023, 11, 15, 0, 13, 20, 1000, tzinfo=dt.timezone(dt.timedelta(hours=2))), NOON + 1),
        (dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC), -1000),
    ],
)
def test_a_time_is_kept_as_a_bigint_of_milliseconds(another: SqlQueue, run_after: dt.datetime, dequeue_at: int) -> None:
    by_python = Queue("mail").send("x", run_after=run_after)
    by_sql = another.session.one(
        "select pgqueue_message_create('1', 'mail', p_dequeue_at => pgqueue_to_epoch(%s))", [run_after]
    )
    assert [another.session.message(message_id).dequeue_at for message_id in (by_python, by_sql)] == [dequeue_at] * 2


def test_the_clock_does_not_run_double_within_a_minute(another: SqlQueue) -> None:
    """The article adds extract(millisecond), which contains the seconds, to the seconds."""
    seconds = another.session.column("""
        select pgqueue_to_epoch(timestamptz '2023-11-14 22:13:00+00' + n * interval '1 second') / 1000 - 1699999980
        from generate_series(0, 120) as n
    """)
    assert seconds == list(range(121))


def test_what_is_scheduled_is_not_dequeued_before_and_is_afterwards(queue: Face, clock: Clock) -> None:
    clock(NOON)
    queue.send("in a second", dequeue_at=NOON + 1000)
    queue.send("now")
    assert received(queue, 2) == ["now", None]
    clock(NOON + 1000)
    assert received(queue, 1) == ["in a second"]


# Prioritisation, and the case in which each of the article's indexes scans


def test_a_backlog_is_worked_off_by_priority(queue: Face) -> None:
    for content, priority in (("low", -1), ("normal", 0), ("high", 1)):
        queue.send(content, priority=priority)
    assert received(queue, 3) == ["high", "normal", "low"]


def _backlog(another: SqlQueue, dequeue_at: str, priority: str) -> Cost:
    """What it costs to dequeue one message out of 30 000, and one more that is ready at the lowest priority."""
    queue = f"{priority} {dequeue_at}"
    another.session.rows("vacuum pgqueue_message")  # other tests have left dead rows
    another.session.rows(f"""
        insert into pgqueue_message (dequeue_at, content, queue, priority, in_line)
        select {dequeue_at}, '{{}}', '{queue}', {priority}, {dequeue_at} < 9e18 from generate_series(1, 30000) as n
    """)
    another.session.create("the one", queue=queue, priority=-100, dequeue_at=0)
    return cost(another.session, f"select * from pgqueue_message_dequeue(array['{queue}'])")


def test_separate_indexes_would_scan_many_urgent_messages_of_the_future(another: SqlQueue) -> None:
    each = _backlog(another, dequeue_at="9e18::bigint + n", priority="100")
    assert (each.rows, each.entries[READY_INDEX] <= 10) == (1, True)


def test_time_before_priority_would_scan_a_backlog_of_ready_messages(another: SqlQueue) -> None:
    each = _backlog(another, dequeue_at="n", priority="n % 100")
    assert (each.rows, each.entries[READY_INDEX] <= 10) == (1, True)


def test_priority_before_time_reads_one_entry_for_each_priority_and_those_are_bounded(another: SqlQueue) -> None:
    each = _backlog(another, dequeue_at="9e18::bigint + n", priority="100 - n % 200")
    assert (each.rows, each.entries[READY_INDEX] <= 420) == (1, True)


def test_no_background_process_has_to_mark_what_is_ready(queue: Face, another: SqlQueue, clock: Clock) -> None:
    clock(NOON)
    queue.send("later", dequeue_at=NOON + 1)
    before = another.session.messages()
    clock(NOON + 1)
    assert another.session.messages() == before, "nothing has touched it"
    assert received(queue, 1) == ["later"]


def test_priority_without_a_priority_by_historical_and_negative_times(queue: Face, clock: Clock) -> None:
    clock(NOON)
    queue.send("base priority")
    queue.send("high", dequeue_at=1_000_000)
    queue.send("higher", dequeue_at=-1)
    queue.send("base priority, in the future", dequeue_at=NOON + 1)
    assert received(queue, 4) == ["higher", "high", "base priority", None]
