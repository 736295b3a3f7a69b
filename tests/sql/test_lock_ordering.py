"""Row locks are taken in one order, that of the ids, so that calls never deadlock with each other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sessions import concurrently, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

WORKER = "w1"
FUNCTIONS_FOR_HELD = ("pgqueue_message_complete", "pgqueue_message_heartbeat", "pgqueue_message_release")
FUNCTIONS_FOR_RUNNING = ("pgqueue_message_request_cancel",)
FUNCTIONS_FOR_WAITING = ("pgqueue_message_cancel", "pgqueue_message_reschedule")
FUNCTIONS = (*FUNCTIONS_FOR_HELD, *FUNCTIONS_FOR_RUNNING, *FUNCTIONS_FOR_WAITING)


def messages_for(session: Session, function: str, number: int) -> list[int]:
    """Messages as the function wants them: held or waiting."""
    ids = session.create_batch(number)
    if function not in FUNCTIONS_FOR_WAITING:
        session.dequeue(number, worker=WORKER)
    return ids


def call(session: Session, function: str, ids: Sequence[int]) -> list[int]:
    parameters: dict[str, Any] = {"ids": list(ids)}
    if function in FUNCTIONS_FOR_HELD:
        parameters |= {"attempts": [1] * len(ids), "worker": WORKER}
    return session.ids(function, **parameters)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (3, 0, 4, 2, 1)])
def test_a_call_that_waits_for_a_row_holds_only_the_rows_before_it(
    connect: Connect, function: str, order: tuple[int, ...]
) -> None:
    holder, caller, witness = connect(autocommit=False), connect(), connect()
    ids = messages_for(witness, function, 5)
    holder.rows("select from pgqueue_message where id = %s for update", [ids[2]])

    def locked_behind_the_wait() -> list[int]:
        eventually(lambda: witness.waits_for_a_lock(caller))
        free = witness.column("select id from pgqueue_message order by id for update skip locked")
        holder.rollback()
        return free

    waiting_call: Callable[[], list[int]] = partial(call, caller, function, [ids[n] for n in order])
    answer, free = concurrently([waiting_call, locked_behind_the_wait])

    assert free == ids[3:]
    assert sorted(answer) == ids


def test_a_dequeue_waits_for_none_of_them(connect: Connect) -> None:
    ending, consumer = connect(autocommit=False), connect()
    ids = consumer.create_batch(10)
    consumer.dequeue(5, worker=WORKER)
    call(ending, "pgqueue_message_complete", ids[:2])
    call(ending, "pgqueue_message_release", ids[2:4])
    call(ending, "pgqueue_message_heartbeat", ids[4:5])
    call(ending, "pgqueue_message_cancel", ids[5:6])
    call(ending, "pgqueue_message_reschedule", ids[6:7])
    consumer.rows("set lock_timeout = '100ms'")
    assert [message.id for message in consumer.dequeue(10)] == ids[7:]
    ending.commit()
    assert [message.id for message in consumer.dequeue(10)] == [*ids[2:4], ids[6]]
