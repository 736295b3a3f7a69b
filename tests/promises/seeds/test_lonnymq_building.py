"""LonnyMQ's first article, "Building LonnyMQ": the queue as SQL functions.

FIFO and scheduling: ``test_lonnymq_fifo_scheduling.py``.  The five tries at priority, and the cases in which their
indexes scan: ``test_lonnymq_prioritisation.py``.  The clock that runs double: ``tests/sql/clock``.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from django_pgqueue.queue import Queue
from tests.promises.seeds.test_lonnymq_fifo_scheduling import received
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.promises.seeds.conftest import Clock, Face
    from tests.promises.seeds.faces import SqlQueue

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


def test_no_background_process_has_to_mark_what_is_ready(queue: Face, another: SqlQueue, clock: Clock) -> None:
    clock(NOON)
    queue.send("later", dequeue_at=NOON + 1)
    before = another.session.messages()
    clock(NOON + 1)
    assert another.session.messages() == before, "nothing has touched it"
    assert received(queue, 1) == ["later"]
