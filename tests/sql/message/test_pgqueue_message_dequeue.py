"""Consumers take ready messages and lock them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.words import contents, floors
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

MINUTE = 60_000


# What a consumer holds


def test_it_returns_the_updated_row(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create({"n": 1}, queue="mail", headers={"trace": 1})
    held = session.take(worker="w1", lock_ms=5000)

    assert held == session.message(message_id)
    assert (held.attempt, held.worker, held.unlock_at) == (1, "w1", NOON + 5000)
    assert held.locked_at.timestamp() * 1000 == NOON
    assert (held.content, held.headers, held.queue) == ({"n": 1}, {"trace": 1}, "mail")


@pytest.mark.parametrize(("limit", "taken"), [(-1, 0), (0, 0), (None, 0), (1, 1), (3, 3), (5, 4)])
def test_it_takes_as_many_messages_as_are_ready_up_to_the_limit(session: Session, limit: Any, taken: int) -> None:
    session.create_batch(4)
    assert contents(session.dequeue(limit)) == list(range(taken))
    assert len([message for message in session.messages() if message.worker]) == taken


@pytest.mark.parametrize("lock_ms", [None, 0, -1, -60_000, 10**12 + 1, -(2**63), 2**63 - 1])
def test_a_lock_that_ends_never_or_has_ended_is_refused(session: Session, lock_ms: int | None) -> None:
    session.create(task="t")
    session.commit()
    for function, parameters in {"pgqueue_message_dequeue": {"tasks": True}, "pgqueue_quarantine_dequeue": {}}.items():
        with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
            session.call(function, lock_ms=lock_ms, **parameters)
        assert refused.value.diag.message_primary == f"p_lock_ms is {'null' if lock_ms is None else lock_ms}"
        assert refused.value.diag.message_hint == "It must be milliseconds, from 1 to 1000000000000."
        session.rollback()
    assert session.take(tasks=True, lock_ms=10**12).attempt == 1


# When


def test_a_message_is_ready_at_its_millisecond(session: Session) -> None:
    session.create(dequeue_at=NOON)
    session.set_clock(NOON - 1)
    assert session.dequeue() == []
    session.set_clock(NOON)
    assert len(session.dequeue()) == 1


# In which order


@pytest.mark.parametrize("limit", [1, 4, 30])
def test_batches_of_any_size_have_the_same_order(session: Session, limit: int) -> None:
    session.set_clock(NOON)
    for n in range(30):
        session.create(n, priority=n % 3, dequeue_at=NOON - n % 5)
    expected = sorted(range(30), key=lambda n: (-(n % 3), -(n % 5), n))
    assert [content for _ in range(30) for content in contents(session.dequeue(limit))] == expected


def test_historical_and_negative_times_go_ahead(session: Session) -> None:
    session.create("now")
    session.create("historical", dequeue_at=1)
    session.create("zero", dequeue_at=0)
    session.create("negative", dequeue_at=-1)
    session.create("most negative", dequeue_at=-(2**63))
    assert [session.take().content for _ in range(5)] == ["most negative", "negative", "zero", "historical", "now"]


def test_a_scheduled_message_of_high_priority_blocks_nothing_and_is_first_when_due(session: Session) -> None:
    session.set_clock(NOON)
    session.create("urgent, but later", priority=100, dequeue_at=NOON + 5000)
    session.create_batch(2)
    assert contents(session.dequeue(1)) == [0]
    session.set_clock(NOON + 5000)
    assert contents(session.dequeue(2)) == ["urgent, but later", 1]


def test_all_priorities_are_found_in_their_order(session: Session) -> None:
    for priority in range(-100, 101):
        session.create(priority, priority=priority)
    assert contents(session.dequeue(201)) == list(range(100, -101, -1))


# From which queues


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({}, {"mail", "maps", "spam"}),
        ({"queues": None}, {"mail", "maps", "spam"}),
        ({"queues": ["mail"]}, {"mail"}),
        ({"queues": ["mail", "maps", "mail", "nowhere"]}, {"mail", "maps"}),
        ({"queues": []}, set()),
        ({"queues": ["nowhere"]}, set()),
        ({"exclude_queues": ["spam"]}, {"mail", "maps"}),
        ({"exclude_queues": ["spam", "mail", "maps"]}, set()),
        ({"queues": ["mail", "spam"], "exclude_queues": ["spam"]}, {"mail"}),
        ({"exclude_queues": None}, {"mail", "maps", "spam"}),
    ],
)
def test_a_consumer_chooses_its_queues(session: Session, chosen: dict[str, Any], found: set[str]) -> None:
    for queue in ("mail", "maps", "spam"):
        session.create(queue, queue=queue)
    assert set(contents(session.dequeue(10, **chosen))) == found


@pytest.mark.parametrize("chosen", [{}, {"queues": ["mail", "maps", "spam"]}])
def test_queues_of_one_priority_share_a_batch_evenly(session: Session, chosen: dict[str, Any]) -> None:
    for queue in ("mail", "maps", "spam"):
        session.create_batch(100, queue=queue)
    taken = session.dequeue(30, **chosen)
    assert Counter(message.queue for message in taken) == {"mail": 10, "maps": 10, "spam": 10}
    for queue in ("mail", "maps", "spam"):
        assert [message.content for message in taken if message.queue == queue] == list(range(10))


@pytest.mark.parametrize("limit", range(1, 13))
def test_other_queues_take_the_unused_share_of_a_queue(session: Session, limit: int) -> None:
    session.create_batch(100, queue="flood")
    session.create_batch(1, queue="one")
    session.create_batch(2, queue="two")
    assert len(session.dequeue(limit)) == limit
    remaining = Counter(message.queue for message in session.messages() if message.worker is None)
    if limit >= 5:
        assert (remaining["one"], remaining["two"]) == (0, 0), "the flood took their place"


def test_priority_goes_before_even_shares(session: Session) -> None:
    session.create_batch(10, queue="flood", priority=1)
    session.create_batch(10, queue="neighbour")
    assert Counter(message.queue for message in session.dequeue(12)) == {"flood": 10, "neighbour": 2}


def test_a_queue_whose_head_is_scheduled_gives_its_share_to_the_others(session: Session) -> None:
    session.set_clock(NOON)
    session.create_batch(10, queue="ready")
    session.create(queue="scheduled", dequeue_at=NOON + 1)
    session.create("lower", queue="scheduled", priority=-1)
    assert contents(session.dequeue(11)) == [*range(10), "lower"]


# Where there are more queues than places


def take_one_by_one(session: Session, number: int) -> list[str]:
    return [session.take().queue for _ in range(number)]


def test_single_dequeues_alternate_between_queues(session: Session) -> None:
    """However long each of them is."""
    session.create_batch(400, queue="a flood")
    for n in range(99):
        session.create_batch(3, queue=f"neighbour {n}")
    for _ in range(2):
        assert len(set(take_one_by_one(session, 100))) == 100


def test_a_batch_continues_after_the_queue_of_the_last_one(session: Session) -> None:
    for n in range(100):
        session.create_batch(2, queue=f"q{n}")
    taken = [message.queue for _ in range(4) for message in session.dequeue(50)]
    assert len(set(taken[:100])) == len(set(taken[100:])) == 100


def test_sessions_without_a_memory_serve_all_of_them(session: Session) -> None:
    session.create_batch(40, queue="a flood")
    for n in range(50):
        session.create(queue=f"neighbour {n}")
    taken = []
    while messages := session.dequeue(1):
        taken += messages
        session.rows("reset all")
    assert len({message.queue for message in taken}) == 51
    assert len(taken) == 90


@pytest.mark.parametrize("limit", [1, 40, 300])
def test_ready_messages_of_any_number_of_queues_are_taken_by_priority(session: Session, limit: int) -> None:
    for n in range(240):
        session.create(queue=f"q{n % 80}", priority=n // 80)
    taken = [message.priority for _ in range(-(-240 // limit)) for message in session.dequeue(limit)]
    assert taken == sorted(taken, reverse=True)
    assert len(taken) == 240


def test_a_round_skips_locked_messages_and_paused_queues(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    for n in range(100):
        session.create_batch(2, queue=f"q{n:02}")
    session.call("pgqueue_queue_pause", queue="q50")
    other.rows("select id from pgqueue_message where queue <= 'q89' for update")
    exclude = [f"q{n}" for n in range(60, 95)]
    taken = session.dequeue(30, exclude_queues=exclude)
    other.rollback()
    assert Counter(message.queue for message in taken) == {f"q{n}": 2 for n in range(95, 100)}
    assert len(session.dequeue(500)) == 198 - 10


def test_queues_without_takeable_messages_cost_a_round_nothing(session: Session) -> None:
    """Where only the last queue of many may be taken from, it gives all that is wanted, before any lower priority."""
    for n in range(39):
        session.create(queue=f"q{n:02}")
        session.call("pgqueue_queue_pause", queue=f"q{n:02}")
    session.create_batch(100, queue="q40")
    session.create_batch(100, queue="low", priority=-5)
    for _ in range(5):
        assert [message.queue for message in session.dequeue(10)] == ["q40"] * 10


def test_rounds_of_tasks_and_of_raw_messages_do_not_disturb_each_other(session: Session) -> None:
    for n in range(40):
        session.create_batch(3, queue=f"q{n:02}")
        session.create_batch(3, queue=f"q{n:02}", task="x.y")
    taken = [(session.take().queue, session.take(tasks=True).queue) for _ in range(40)]
    for queues in zip(*taken, strict=True):
        assert len(set(queues)) == 40


def test_without_a_memory_a_flood_weighs_no_more_than_others(session: Session) -> None:
    session.rows(f"""
        insert into pgqueue_message (content, queue, dequeue_at, in_line)
        select '1'::jsonb, 'a', {2**62}, false from generate_series(1, 3000) union all
        select '1', 'b', 0, true from generate_series(1, 300) union all
        select '1', 'q' || n % 40, 0, true from generate_series(1, 400) as n
    """)
    taken = []
    for _ in range(150):
        taken.append(session.take().queue)
        session.rows("reset all")
    assert len(set(taken)) > 10


# What is scheduled comes into line


def in_line(session: Session) -> list[bool]:
    return session.column("select in_line from pgqueue_message order by id")


def test_a_scheduled_message_is_in_line_after_a_dequeue_finds_it_due(session: Session) -> None:
    session.set_clock(NOON)
    session.create("now")
    session.create("later", dequeue_at=NOON + 1)
    session.create("paused", dequeue_at=NOON + 1, queue="paused")
    session.create("a task", dequeue_at=NOON + 1, task="x.y")
    session.call("pgqueue_queue_pause", queue="paused")
    assert in_line(session) == [True, False, False, False]
    assert contents(session.dequeue(10)) == ["now"]
    session.set_clock(NOON + 1)
    assert contents(session.dequeue(10)) == ["later"]
    assert in_line(session) == [True, True, True, False]


def test_due_messages_come_into_line_by_priority_and_then_by_time(session: Session) -> None:
    session.set_clock(NOON)
    session.rows(f"""
        insert into pgqueue_message (content, dequeue_at, priority, in_line)
        select to_jsonb(n), {NOON} + n, n % 2, false from generate_series(1, 1200) as n
    """)
    session.set_clock(NOON + 1200)
    first = contents(session.dequeue(250))
    assert first == [n for n in range(1, 501) if n % 2]
    second = contents(session.dequeue(250))
    assert second == [n for n in range(501, 1001) if n % 2]
    assert len(session.dequeue(1000)) == 700


def test_a_dequeue_in_a_longer_transaction_brings_only_what_it_takes_into_line(connect: Connect) -> None:
    session, other = connect(autocommit=False), connect()
    other.set_clock(NOON)
    for n in range(10):
        other.create(n, dequeue_at=NOON + 1, queue="other" if n < 5 else "own")
    other.set_clock(NOON + 1)
    assert contents(session.dequeue(2, queues=["own"], brief=False)) == [5, 6]
    assert sorted(contents(other.dequeue(10))) == [0, 1, 2, 3, 4, 7, 8, 9]
    session.rollback()


def test_a_message_in_line_before_its_time_leaves_the_line(session: Session) -> None:
    """Written by hand, or the clock was put back."""
    session.set_clock(NOON)
    session.rows(f"insert into pgqueue_message (content, dequeue_at) values ('1', {NOON + 5}), ('2', {NOON})")
    assert contents(session.dequeue(10)) == [2]
    assert in_line(session) == [True, True]  # a message that is due stands before it
    assert session.dequeue(10) == []
    assert in_line(session) == [False, True]
    assert session.value("pgqueue_message_next_at") == NOON + 5
    session.set_clock(NOON + 5)
    assert contents(session.dequeue(10)) == [1]


def test_a_flood_that_becomes_due_does_not_delay_urgent_messages(session: Session) -> None:
    session.rows("""
        insert into pgqueue_message (content, queue, dequeue_at, priority, in_line)
        select '"flood"'::jsonb, 'flood', n, 0, false from generate_series(1, 3000) as n union all
        select '"urgent"', 'urgent', 5000, 100, false
    """)
    assert contents(session.dequeue(1)) == ["urgent"]
    session.create("as urgent", queue="urgent", priority=100)
    session.call("pgqueue_queue_pause", queue="flood")
    assert contents(session.dequeue(1, queues=["urgent"])) == ["as urgent"]


@pytest.mark.parametrize("queues", [None, ["q"]])
def test_a_dequeue_in_a_longer_transaction_takes_the_highest_due_priority(
    session: Session, queues: list[str] | None
) -> None:
    session.rows("""
        insert into pgqueue_message (content, queue, dequeue_at, priority, in_line)
        select to_jsonb(n), 'q', n, n - 50, false from generate_series(1, 99) as n
    """)
    assert contents(session.dequeue(1, queues=queues, brief=False)) == [99]


def test_due_messages_of_a_paused_queue_wake_no_worker(session: Session) -> None:
    session.set_clock(NOON)
    session.create(queue="paused", dequeue_at=NOON + 1)
    session.call("pgqueue_queue_pause", queue="paused")
    session.set_clock(NOON + 2)
    assert session.dequeue(1, brief=False) == []
    assert session.value("pgqueue_message_next_at") is None


def test_due_messages_of_a_paused_queue_do_not_block_longer_transactions(session: Session) -> None:
    session.rows("""
        insert into pgqueue_message (content, queue, dequeue_at, in_line)
        select '"flood"'::jsonb, 'flood', n, false from generate_series(1, 1700) as n union all
        select '"behind it"', 'q', 5000, false
    """)
    session.call("pgqueue_queue_pause", queue="flood")
    assert [contents(session.dequeue(1, brief=False)) for _ in range(3)] == [[], [], ["behind it"]]
    session.call("pgqueue_queue_resume", queue="flood")
    assert contents(session.dequeue(1, brief=False)) == ["flood"]


# Raw messages and tasks


def test_raw_messages_and_tasks_of_one_queue_have_consumers_of_their_own(session: Session) -> None:
    session.create("raw")
    session.create("task", task="shop.tasks.send", priority=100)
    assert contents(session.dequeue(10)) == ["raw"]
    assert contents(session.dequeue(10, tasks=True)) == ["task"]


# Floors


def test_a_floor_is_where_the_search_begins(session: Session) -> None:
    ids = session.create_batch(6, dequeue_at=5)
    floor = floors(("default", 0, 5, ids[2]))
    assert contents(session.dequeue(2, **floor)) == [2, 3]
    assert contents(session.dequeue(10, **floor)) == [4, 5]
    assert session.dequeue(10, **floor) == []
    assert contents(session.dequeue(10)) == [0, 1]


def test_the_id_of_a_floor_counts_within_its_time_alone(session: Session) -> None:
    later_id_earlier_time = [session.create("a", dequeue_at=7), session.create("b", dequeue_at=6)]
    assert contents(session.dequeue(10, **floors(("default", 0, 6, 2**62)))) == ["a"]
    assert session.message(later_id_earlier_time[1]).worker is None


def test_only_the_floors_are_searched_and_in_their_order(session: Session) -> None:
    for queue, priority in (("mail", 0), ("mail", 1), ("maps", 0), ("maps", 1)):
        session.create(f"{queue} {priority}", queue=queue, priority=priority)
    least = -(2**63)
    searched = floors(("maps", 0, least, least), ("mail", 1, least, least))
    assert contents(session.dequeue(10, **searched)) == ["maps 0", "mail 1"]


def test_a_floor_skips_scheduled_messages_and_the_other_kind(session: Session) -> None:
    session.set_clock(NOON)
    session.create("scheduled", dequeue_at=NOON + 1)
    session.create("task", task="shop.tasks.send")
    session.create("raw")
    floor = floors(("default", 0, 0, 0))
    assert contents(session.dequeue(10, **floor)) == ["raw"]
    assert contents(session.dequeue(10, tasks=True, **floor)) == ["task"]


def test_an_empty_array_of_floors_gives_no_messages(session: Session) -> None:
    session.create()
    assert session.dequeue(10, **floors()) == []


# Locks that ran out


def test_a_message_whose_lock_ran_out_is_taken_over(session: Session) -> None:
    session.set_clock(NOON)
    message_id = session.create()
    session.take(worker="dead")
    session.set_clock(NOON + MINUTE - 1)
    assert session.dequeue(worker="alive") == []
    session.set_clock(NOON + MINUTE)
    held = session.take(worker="alive")
    assert (held.id, held.attempt, held.worker) == (message_id, 2, "alive")
    assert [(a.attempt, a.status, a.worker) for a in session.history(message_id)] == [(1, "lost", "dead")]


def test_a_message_taken_over_goes_first_because_it_kept_its_time(session: Session) -> None:
    session.set_clock(NOON)
    session.create("old")
    session.take()
    session.set_clock(NOON + MINUTE)
    session.create("new")
    assert contents(session.dequeue(2)) == ["old", "new"]


def test_more_locks_than_one_call_clears_are_cleared_by_the_next_ones(session: Session) -> None:
    session.set_clock(NOON)
    session.create_batch(250)
    session.dequeue(250)
    session.set_clock(NOON + MINUTE)
    taken = [len(session.dequeue(250)) for _ in range(4)]
    assert taken == [100, 100, 50, 0]
