"""A queue is paused and goes on, and has a release and locks of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue import functions
from tests.sql.words import behind, contents, floors, see
from tests.support.sessions import NOON, Listener, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


# pgqueue_queue_pause: a queue is paused


@pytest.mark.parametrize("chosen", [{}, {"queues": ["mail"]}, {"queues": ["mail"], "exclude_queues": None}])
def test_nothing_is_dequeued_from_a_paused_queue(session: Session, chosen: dict[str, Any]) -> None:
    session.create(queue="mail")
    session.call("pgqueue_queue_pause", queue="mail")
    assert session.dequeue(10, **chosen) == []


def test_floors_do_not_bypass_the_pause(session: Session) -> None:
    session.create(queue="mail")
    session.create("maps", queue="maps")
    session.call("pgqueue_queue_pause", queue="mail")
    assert contents(session.dequeue(10, **floors(("mail", 0, 0, 0), ("maps", 0, 0, 0)))) == ["maps"]


def test_running_messages_go_on_and_new_ones_wait(session: Session) -> None:
    session.create(queue="mail")
    held = session.take()
    session.call("pgqueue_queue_pause", queue="mail")
    assert session.value("pgqueue_message_complete", **token(held)) is True
    session.create(queue="mail")
    assert session.dequeue() == []
    assert len(session.messages()) == 1


def test_consumers_may_sleep_although_a_paused_queue_has_ready_messages(session: Session) -> None:
    session.set_clock(NOON)
    session.create(queue="mail", dequeue_at=NOON - 5)
    session.create(queue="maps", dequeue_at=NOON + 5)
    session.call("pgqueue_queue_pause", queue="mail")
    assert session.value("pgqueue_message_next_at") == NOON + 5
    assert session.value("pgqueue_message_next_at", queues=["mail"]) is None


def test_the_first_author_and_time_are_kept(session: Session) -> None:
    session.set_clock(NOON)
    session.call("pgqueue_queue_pause", queue="mail", by="anna")
    session.set_clock(NOON + 1000)
    session.call("pgqueue_queue_pause", queue="mail", by="bert")
    [row] = session.rows("select name, pgqueue_to_epoch(paused_at) as paused_ms, paused_by from pgqueue_queue")
    assert tuple(row) == ("mail", NOON, "anna")


def test_the_default_author_is_the_user_of_the_database(session: Session) -> None:
    session.call("pgqueue_queue_pause", queue="mail")
    assert session.one("select paused_by = current_user from pgqueue_queue")


# pgqueue_queue_resume: a paused queue goes on


def test_waiting_messages_are_dequeued_in_order_and_only_a_paused_queue_is_resumed(session: Session) -> None:
    session.create_batch(3, queue="mail")
    assert session.value("pgqueue_queue_resume", queue="mail") is False
    session.call("pgqueue_queue_pause", queue="mail")
    assert [session.value("pgqueue_queue_resume", queue="mail") for _ in range(2)] == [True, False]
    assert [message.content for message in session.dequeue(10)] == [0, 1, 2]


def test_a_resumed_queue_can_be_paused_again(session: Session) -> None:
    session.create(queue="mail")
    session.call("pgqueue_queue_pause", queue="mail", by="anna")
    session.value("pgqueue_queue_resume", queue="mail")
    session.call("pgqueue_queue_pause", queue="mail", by="bert")
    assert session.dequeue() == []
    assert session.one("select paused_by from pgqueue_queue") == "bert"


def test_a_sleeping_worker_is_woken_for_a_resumed_queue(connect: Connect) -> None:
    operator, listener = connect(), Listener(connect(), "pgqueue_a")
    operator.call("pgqueue_queue_pause", queue="mail")
    see(operator, "a", asleep_ms=60_000)
    operator.value("pgqueue_queue_resume", queue="mail")
    assert listener.heard(operator) == [("pgqueue_a", "mail")]


# pgqueue_advisory_lock: advisory locks: of this queue alone, and waited for with an end


def holds(session: Session) -> int:
    return int(
        session.one("select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory' and granted")
    )


def test_a_session_holds_the_lock_until_its_transaction_ends(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect()
    assert one.value("pgqueue_advisory_lock", what="x") is True
    assert one.value("pgqueue_advisory_lock", what="x") is True, "once more is no wait"
    assert other.value("pgqueue_advisory_lock", what="x") is False
    assert other.value("pgqueue_advisory_lock", what="y") is True
    one.rollback()
    assert other.value("pgqueue_advisory_lock", what="x") is True


def test_several_sessions_share_the_lock(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect()
    assert one.value("pgqueue_advisory_lock", what="x", shared=True) is True
    assert other.value("pgqueue_advisory_lock", what="x", shared=True) is True
    assert other.value("pgqueue_advisory_lock", what="x") is False


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("setting", "wait_ms"), [("lock_timeout = 0", 20), ("statement_timeout = '2s'", 2**31 - 1)])
def test_the_wait_for_the_lock_is_bounded(connect: Connect, setting: str, wait_ms: int, *, shared: bool) -> None:
    one, other = connect(autocommit=False), connect(autocommit=False)
    one.call("pgqueue_advisory_lock", what="x")
    other.rows(f"set local {setting}")
    assert other.value("pgqueue_advisory_lock", what="x", shared=shared, wait_ms=wait_ms) is False
    assert other.one("show lock_timeout") == "0"
    other.create("the transaction goes on")


def test_a_waiting_session_gets_the_lock_when_it_is_free(connect: Connect) -> None:
    one, other = connect(autocommit=False), connect()
    one.call("pgqueue_advisory_lock", what="x")

    assert behind(one, other, lambda: other.value("pgqueue_advisory_lock", what="x", wait_ms=30_000)) is True
    assert other.one("show lock_timeout") == "0"


def test_a_transaction_takes_no_more_locks_than_a_server_has_room_for(connect: Connect) -> None:
    """It goes on without: limits are set for any number of channels at once, and other sessions get their locks."""
    one, other = connect(autocommit=False), connect(autocommit=False)
    one.rows("select pgqueue_channel_set('tenant ' || n, 1) from generate_series(1, 12000) as n")
    assert holds(one) == 3000
    assert one.value("pgqueue_advisory_lock", what="x", wait_ms=1) is False
    assert one.value("pgqueue_advisory_lock", what="z") is True, "whose caller skips what another session does"
    assert other.value("pgqueue_advisory_lock", what="x") is True
    one.commit()
    assert one.one("select count(*) from pgqueue_channel where max_concurrency = 1") == 12000
    assert one.value("pgqueue_advisory_lock", what="y", wait_ms=1) is True


# pgqueue_version: which release is installed


def test_it_is_the_release_that_this_code_needs(session: Session) -> None:
    assert session.value("pgqueue_version") == functions.needed()
