"""What no worker has known for a while fails, and the error names those who were asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.message.test_pgqueue_message_park import parked, register
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def fail(session: Session, *tasks: str, seconds: int = 60, limit: int = 100) -> int:
    count: int = session.value(
        "pgqueue_message_unknown_fail", queues=["default"] * len(tasks), tasks=list(tasks), seconds=seconds, limit=limit
    )
    return count


def test_an_unknown_message_fails_with_the_workers_and_the_last_reason(session: Session) -> None:
    session.set_clock(NOON)
    message_id = parked(session)
    session.set_clock(NOON + 59_999)
    register(session, "w1", lacks=["t"])
    register(session, "w2", lacks=["s"], refuses=["t"], hostname="there")
    assert fail(session, "t") == 0
    session.set_clock(NOON + 60_000)
    assert fail(session, "t") == 1
    assert session.messages() == []
    [attempt] = session.history(message_id)
    assert (attempt.status, attempt.final, attempt.attempt, attempt.dequeue_at) == ("failed", True, 0, NOON)
    assert attempt.error_class == "django_pgqueue.exceptions.UnknownTask"
    assert "w1 on here, w2 on there" in attempt.error_message
    assert "no such task" in attempt.error_message


def test_it_waits_for_a_living_worker_that_may_know_the_message(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 3_600_000)
    register(session, "lacks", lacks=["t"])
    register(session, "busy")
    assert fail(session, "t") == 0
    session.set_clock(NOON + 3_600_000 + 61_000)
    register(session, "lacks", lacks=["t"])
    assert fail(session, "t") == 1, "the other one has not been seen for a minute"


def test_it_waits_for_a_worker_that_lacks_many_other_tasks(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 60_000)
    register(session, "lacks", lacks=["t"])
    register(session, "lacks others", lacks=[f"typo{n:03}" for n in range(60)])
    assert fail(session, "t") == 0


def test_a_resting_worker_counts_for_its_announced_time(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    register(session, "rests")
    session.rows("update pgqueue_worker set silent_until = %s", [NOON + 600_000])
    session.set_clock(NOON + 599_000)
    register(session, "lacks", lacks=["t"])
    assert fail(session, "t") == 0
    session.set_clock(NOON + 601_000)
    register(session, "lacks", lacks=["t"])
    assert fail(session, "t") == 1


def test_workers_of_other_queues_and_of_raw_messages_do_not_count(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 60_000)
    register(session, "w1", lacks=["t"])
    register(session, "mail", queues=["mail"])
    register(session, "not default", exclude_queues=["default"])
    register(session, "raw", tasks=False)
    assert fail(session, "t") == 1


def test_without_a_living_worker_no_message_fails(session: Session) -> None:
    session.set_clock(NOON)
    parked(session)
    session.set_clock(NOON + 60_000)
    assert fail(session, "t") == 0


def test_each_task_has_its_share_of_a_call(session: Session) -> None:
    session.set_clock(NOON)
    for _ in range(5):
        parked(session, task="flood")
    parked(session, task="other")
    session.set_clock(NOON + 60_000)
    register(session, "w1", lacks=["flood", "other"])
    assert fail(session, "flood", "other", limit=4) == 3
    assert {message.task for message in session.messages()} == {"flood"}


def test_it_waits_for_no_other_session(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    message_id = parked(session)
    register(session, "w1", lacks=["t"])
    other.rows("select from pgqueue_message where id = %s for update", [message_id])
    assert fail(session, "t", seconds=0) == 0
    other.rollback()
    assert fail(session, "t", seconds=0) == 1
