"""Quarantined messages are taken alone, and those that were lost least come first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.lanes import channel, drifted, set_channel
from tests.sql.message.test_pgqueue_message_lose import die_alone_with, quarantined
from tests.support.sessions import NOON, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def take_alone(session: Session, **parameters: Any) -> Any:
    return next(iter(session.call("pgqueue_quarantine_dequeue", **{"worker": "alone", **parameters})), None)


def waits(session: Session, **parameters: Any) -> bool:
    answer: bool = session.value("pgqueue_quarantine_waits", **parameters)
    return answer


def test_it_takes_one_message_and_locks_it_like_any_dequeue(session: Session) -> None:
    session.set_clock(NOON)
    message_id = quarantined(session, dequeue_at=NOON - 5)
    quarantined(session)
    held = take_alone(session, lock_ms=1000)
    assert (held.id, held.attempt, held.worker, held.unlock_at, held.dequeue_at) == (
        message_id, 2, "alone", NOON + 1000, NOON - 5,
    )  # fmt: skip
    assert session.value("pgqueue_message_complete", **token(held)) is True
    assert session.history(message_id)[-1].dequeue_at == NOON - 5


def test_without_a_quarantined_message_it_takes_nothing(session: Session) -> None:
    session.create_batch(3, task="t")
    assert not waits(session)
    assert take_alone(session) is None


def test_it_never_takes_a_raw_message(session: Session) -> None:
    raw = session.create()
    session.rows("update pgqueue_message set alone_at = 1 where id = %s", [raw])
    assert not waits(session)
    assert take_alone(session) is None


def test_messages_with_the_fewest_losses_come_first(session: Session) -> None:
    poison = quarantined(session)
    assert die_alone_with(session).id == poison
    innocent = quarantined(session)
    assert [take_alone(session).id for _ in range(2)] == [innocent, poison]


def test_a_scheduled_message_waits(session: Session) -> None:
    session.set_clock(NOON)
    message_id = quarantined(session)
    assert session.ids("pgqueue_message_reschedule", ids=[message_id], dequeue_at=NOON + 10) == [message_id]
    assert session.dequeue(tasks=True) == []
    assert not waits(session)
    assert take_alone(session) is None
    session.set_clock(NOON + 10)
    assert waits(session)
    assert take_alone(session).id == message_id


@pytest.mark.parametrize(
    "others", [{"queues": ["other"]}, {"exclude_queues": ["default"]}, {"queues": []}], ids=lambda o: next(iter(o))
)
def test_it_takes_no_message_of_other_queues(session: Session, others: Any) -> None:
    quarantined(session)
    assert not waits(session, **others)
    assert take_alone(session, **others) is None
    assert waits(session, queues=["default"])
    assert take_alone(session, queues=["default"]) is not None


def test_a_paused_queue_is_skipped(session: Session) -> None:
    quarantined(session)
    session.call("pgqueue_queue_pause", queue="default")
    assert not waits(session)
    assert take_alone(session) is None
    session.call("pgqueue_queue_resume", queue="default")
    assert waits(session)


def test_the_limits_of_channels_hold(session: Session) -> None:
    set_channel(session, max_concurrency=1)
    first, second = quarantined(session, channel="acme"), quarantined(session, channel="acme")
    session.dequeue(1, tasks=True)  # works in what has ended
    held = take_alone(session)
    assert held.id == first
    assert (channel(session).running, drifted(session)) == (1, [])
    assert not waits(session)
    assert take_alone(session) is None
    session.call("pgqueue_message_complete", **token(held))
    session.dequeue(1, tasks=True)
    assert waits(session)
    assert take_alone(session).id == second
    assert drifted(session) == []


def test_the_interval_of_a_channel_holds(session: Session) -> None:
    session.set_clock(NOON)
    set_channel(session, release_interval_ms=1000)
    first = quarantined(session, channel="acme")
    assert take_alone(session) is None
    session.set_clock(NOON + 1000)
    assert take_alone(session).id == first
    assert channel(session).release_at == NOON + 2000


def test_an_ordinary_message_waits_for_a_quarantined_one_of_its_channel(session: Session) -> None:
    set_channel(session, max_concurrency=1)
    quarantined(session, channel="acme")
    session.dequeue(1, tasks=True)
    held = take_alone(session)
    waiting = session.create(task="t", channel="acme")
    assert session.dequeue(1, tasks=True) == []
    session.call("pgqueue_message_complete", **token(held))
    assert session.take(tasks=True).id == waiting


def test_a_deleted_channel_is_counted_again_when_it_is_recreated(session: Session) -> None:
    message_id = quarantined(session, channel="acme")
    session.rows("delete from pgqueue_lane; delete from pgqueue_arrival; delete from pgqueue_channel")
    assert take_alone(session).id == message_id
    session.dequeue(1, tasks=True)
    assert channel(session).running == 1
    assert drifted(session) == []


def test_two_concurrent_calls_take_one_message_each_without_waiting(connect: Connect) -> None:
    first, second = connect(autocommit=False), connect()
    ids = [quarantined(second), quarantined(second)]
    second.rows("set lock_timeout = '1s'")
    assert [take_alone(first).id, take_alone(second).id] == ids
    assert take_alone(second) is None


def test_a_cancelled_message_leaves_the_queue_with_its_own_time(session: Session) -> None:
    session.set_clock(NOON)
    message_id = quarantined(session, dequeue_at=NOON - 5)
    assert session.ids("pgqueue_message_cancel", ids=[message_id]) == [message_id]
    assert [(end.status, end.dequeue_at) for end in session.history(message_id)] == [
        ("lost", NOON - 5), ("cancelled", NOON - 5),
    ]  # fmt: skip
