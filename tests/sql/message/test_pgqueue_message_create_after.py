"""A message that waits until others have left the queue.  When it is released: see test_pgqueue_message_settle.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.words import see
from tests.support.sessions import NOON, Listener

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def create_after(session: Session, *after_ids: int, content: Any = "next", **parameters: Any) -> int:
    message_id: int = session.value(
        "pgqueue_message_create_after", after_ids=list(after_ids), content=content, **parameters
    )
    return message_id


def test_a_waiting_message_is_a_message_that_is_not_due(session: Session) -> None:
    session.set_clock(NOON)
    said: dict[str, Any] = {
        "queue": "mail",
        "task": "shop.tasks.send",
        "priority": 3,
        "channel": "tenant",
        "headers": {"trace": 1},
        "max_attempts": 2,
    }
    first = session.create("first")
    message = session.message(create_after(session, first, **said))
    assert {name: getattr(message, name) for name in said} == said
    assert (message.content, message.after_ids, message.after_policy) == ("next", [first], "finished")
    assert message.created_at.timestamp() * 1000 == NOON


def test_a_waiting_message_wakes_no_worker(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_a")
    first = producer.create(dequeue_at=2**62)
    see(producer, "a", asleep_ms=60_000)
    create_after(producer, first)
    assert listener.heard(producer) == []


def test_an_unknown_policy_is_refused(session: Session) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="after_policy_known"):
        create_after(session, 1, policy="failed")


def test_a_hundred_thousand_ids_are_the_limit(connect: Connect) -> None:
    session = connect()
    ids = "array(select g::bigint from generate_series(1, {}) as g)"
    session.rows(f"select pgqueue_message_create_after({ids.format(100_000)}, '1')")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="p_after_ids has 100001 ids") as refusal:
        session.rows(f"select pgqueue_message_create_after({ids.format(100_001)}, '1')")
    assert refusal.value.diag.message_hint == "It may have 100000: let messages between them wait for a part each."


def test_a_waiting_message_can_be_cancelled(session: Session) -> None:
    message_id = create_after(session, session.create())
    assert session.value("pgqueue_message_cancel", id=message_id) is True
    assert [end.status for end in session.history(message_id)] == ["cancelled"]


@pytest.mark.parametrize("dequeue_at", [None, NOON, NOON + 5000])
def test_a_reschedule_breaks_no_dependency_unasked(session: Session, dequeue_at: int | None) -> None:
    session.set_clock(NOON)
    first, scheduled = session.create("first"), session.create(dequeue_at=NOON + 9000)
    waiting = create_after(session, first)
    before = session.rows("select * from pgqueue_message where id = %s", [waiting])
    ids = [scheduled, waiting]
    assert session.ids("pgqueue_message_reschedule", ids=ids, dequeue_at=dequeue_at) == [scheduled]
    assert session.rows("select * from pgqueue_message where id = %s", [waiting]) == before
    # As code of 0.1.0 calls it, by place.
    [*moved] = session.rows("select pgqueue_message_reschedule(%s::bigint[], %s::bigint)", [ids, dequeue_at])
    assert [row[0] for row in moved] == [scheduled]


@pytest.mark.parametrize("dequeue_at", [None, NOON, NOON + 5000])
def test_a_message_whose_dependencies_are_broken_waits_for_a_time_instead(
    session: Session, dequeue_at: int | None
) -> None:
    session.set_clock(NOON)
    first = session.create("first", priority=-1)
    message_id = create_after(session, first, policy="succeeded")
    moved = session.ids("pgqueue_message_reschedule", ids=[message_id], dequeue_at=dequeue_at, break_dependencies=True)
    assert moved == [message_id]
    session.value("pgqueue_message_cancel", id=first)
    assert session.value("pgqueue_message_settle") == 0, "nobody cancels or releases it any more"
    session.set_clock(dequeue_at or NOON)
    assert session.take().id == message_id


def test_results_that_are_wanted_are_kept_for_the_message_that_waits(session: Session) -> None:
    """The one that ended before the enqueue, and one that ends later; also when the history has lost them."""
    first = session.create("first")
    taken = session.take()
    session.value("pgqueue_message_complete", id=first, attempt=1, worker=taken.worker, result="tea")
    second = session.create("second")
    waiting = create_after(session, first, second, keep_results=True)
    plain = create_after(session, first, second)
    kept = "select status, result from pgqueue_child where parent_id = %s order by message_id"
    assert session.rows(kept, [waiting]) == [("succeeded", "tea"), (None, None)]
    session.value("pgqueue_message_cancel", id=second)
    session.rows("select pgqueue_child_keep((pgqueue_clock() at time zone 'utc')::date)")
    session.rows("delete from pgqueue_attempt")

    def outcomes(parent: int) -> list[tuple[str, Any]]:
        rows = session.rows("select * from pgqueue_child_outcomes(%s, %s)", (parent, [first, second]))
        return [(row.p_status, row.p_result) for row in rows]

    assert outcomes(waiting) == [("succeeded", "tea"), ("cancelled", None)]
    assert outcomes(plain) == [("unknown", None)] * 2


def test_an_id_that_is_given_twice_has_one_result(connect: Connect) -> None:
    """The clock goes on between the two of them."""
    session = connect()
    first = session.create("first")
    waiting = create_after(session, *[first] * 100, keep_results=True)
    children = session.rows("select message_id from pgqueue_child where parent_id = %s", [waiting])
    assert children == [(first,)]


def test_no_day_of_the_history_is_locked_for_messages_that_have_not_ended(connect: Connect) -> None:
    """The locks would last until the caller's transaction ends, and the server has no room for many of them."""
    session = connect()
    first = session.create("first")
    locked = (
        "select count(*) from pg_locks where pid = pg_backend_pid() and relation in ("
        "select inhrelid from pg_inherits where inhparent = 'pgqueue_attempt'::regclass)"
    )
    with session.connection.transaction():
        create_after(session, first - 1)
        create_after(session, first, keep_results=True)
        assert session.one(locked) == 0
        create_after(session, first - 1, keep_results=True)
        assert session.one(locked) > 0
