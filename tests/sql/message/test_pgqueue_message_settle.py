"""Messages that wait for others are released when those have left the queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.sql.message.test_pgqueue_message_create_after import create_after
from tests.sql.words import see
from tests.support.cost import cost
from tests.support.databases import empty_database, install, session_in
from tests.support.sessions import NOON, Listener, concurrently, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def confirm(session: Session) -> None:
    """Looks until nobody needs to be looked at before something happens."""
    for _ in range(3):
        assert session.value("pgqueue_message_settle") == 0


def test_a_retried_message_has_not_ended(session: Session) -> None:
    create_after(session, session.create())
    session.value("pgqueue_message_defer", **token(session.take()), error={"message": "no network"})
    assert session.value("pgqueue_message_settle") == 0


def test_messages_that_are_not_in_the_queue_are_not_waited_for(session: Session) -> None:
    create_after(session, 2**62)
    create_after(session)
    assert session.value("pgqueue_message_settle") == 2


@pytest.mark.parametrize(
    ("policy", "ending", "runs"),
    [
        ("finished", "complete", True),
        ("finished", "fail", True),
        ("succeeded", "complete", True),
        ("succeeded", "fail", False),
        ("succeeded", "cancel", False),
    ],
)
def test_the_policy_decides_whether_a_failure_cancels_the_message(
    session: Session, policy: str, ending: str, runs: bool
) -> None:
    session.set_clock(NOON)
    first = session.create("first")
    waiting = create_after(session, first, policy=policy)
    session.value(f"pgqueue_message_{ending}", **token(session.take()))
    assert session.value("pgqueue_message_settle") == 1
    taken = session.dequeue()
    assert bool(taken) is runs
    if runs:
        assert (taken[0].after_ids, taken[0].check_at, taken[0].checks) == (None, None, None)
    else:
        [end] = session.history(waiting)
        assert (end.status, end.final, end.content, end.attempt) == ("cancelled", True, "next", 0)
        assert end.error_message == f"message {first} had to succeed first, but did not"


def test_a_chain_runs_one_claim_after_the_other(session: Session) -> None:
    ids = [session.create("head")]
    for number in range(20):
        ids.append(create_after(session, ids[-1], content=number))
    ran = []
    for _ in ids:
        held = session.take()
        ran.append(held.id)
        session.value("pgqueue_message_complete", **token(held))
    assert ran == ids


def test_an_uncommitted_end_keeps_the_next_check_near(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    session.set_clock(NOON)
    first = session.create("first")
    other.value("pgqueue_message_cancel", id=first)
    waiting = create_after(session, first)
    for waited_ms, again_ms in ((0, 100), (500, 100), (5000, 500), (50_000, 5000), (500_000, 10_000)):
        session.set_clock(NOON + waited_ms)
        assert session.value("pgqueue_message_settle") == 0
        assert session.message(waiting).check_at == NOON + waited_ms + again_ms
    other.commit()
    session.set_clock(NOON + 510_000)
    assert session.value("pgqueue_message_settle") == 1


@pytest.mark.parametrize("brief", [False, True])
def test_a_check_in_a_longer_transaction_blocks_no_end(connect: Connect, brief: bool) -> None:
    session, other = connect(), connect(autocommit=False)
    first = session.create("first")
    waiting = create_after(session, first)
    if brief:
        other.create("something of its own")
    assert other.value("pgqueue_message_settle", brief=brief) == 0
    session.rows("set lock_timeout = '1s'")
    session.value("pgqueue_message_cancel", id=first)
    other.commit()
    session.set_clock(NOON * 2)
    assert session.value("pgqueue_message_settle") == 1
    assert session.message(waiting).after_ids is None


def test_a_message_waits_for_its_own_time_first(session: Session) -> None:
    session.set_clock(NOON)
    waiting = [create_after(session, other, dequeue_at=NOON + 1000) for other in (2**62, session.create("first"))]
    session.value("pgqueue_message_cancel", id=session.messages()[0].id)
    for passed_ms, settled in ((0, 0), (999, 0), (1000, 2)):
        session.set_clock(NOON + passed_ms)
        assert session.value("pgqueue_message_settle") == settled
    assert {session.message(each).dequeue_at for each in waiting} == {NOON + 1000}


def test_after_its_own_time_a_message_waits_for_the_others(connect: Connect) -> None:
    session = connect()
    session.set_clock(NOON)
    first = session.create("first")
    waiting = create_after(session, first, dequeue_at=NOON + 1000)
    session.set_clock(NOON + 1000)
    confirm(session)
    message = session.message(waiting)
    assert (message.awaited_id, message.check_at) == (first, None)
    session.value("pgqueue_message_cancel", id=first)
    assert session.value("pgqueue_message_settle") == 1


def test_a_message_waits_for_the_last_end_in_any_order(connect: Connect) -> None:
    session = connect()
    session.set_clock(NOON)
    ids = session.create_batch(5)
    waiting = create_after(session, *reversed(ids), ids[0])
    assert session.message(waiting).after_ids == ids
    left = set(ids)
    for ended in (ids[2], ids[4], ids[0], ids[3], ids[1]):
        confirm(session)
        message = session.message(waiting)
        assert (message.awaited_id, message.check_at) == (max(left), None)
        session.value("pgqueue_message_cancel", id=ended)
        left.remove(ended)
        settled = session.value("pgqueue_message_settle")
        assert settled == (not left)
        if ended < message.awaited_id:
            assert session.message(waiting).checks == message.checks, "nobody had to look"


def test_a_row_locked_by_another_session_is_checked_later(connect: Connect) -> None:
    session, other = connect(), connect(autocommit=False)
    session.set_clock(NOON)
    first = session.create("first")
    waiting = create_after(session, first)
    confirm(session)
    other.rows("select from pgqueue_message where id = %s for update", [waiting])
    session.rows("set lock_timeout = '1s'")
    session.value("pgqueue_message_cancel", id=first)
    assert session.value("pgqueue_message_settle") == 0
    other.rollback()
    assert not session.dequeue(), "not at every claim meanwhile"
    session.set_clock(NOON + 100)
    assert session.take().id == waiting


def test_each_ended_message_gets_an_equal_share(session: Session) -> None:
    """Beside a thousand that wait for one, two that wait for another are no later than these."""
    session.set_clock(NOON)
    many, few = session.create("many"), session.create("few")
    for _ in range(50):
        create_after(session, many, queue="many")
    for _ in range(2):
        create_after(session, few, queue="few")
    session.ids("pgqueue_message_cancel", ids=[many, few])
    session.rows("update pgqueue_message set check_at = null")
    assert session.value("pgqueue_message_settle", limit=10) == 7
    assert len(session.dequeue(10, queues=["few"])) == 2
    while session.value("pgqueue_message_settle", limit=10):
        pass
    assert len(session.dequeue(100, queues=["many"])) == 50
    assert session.one("select count(*) from pgqueue_ended") == 0


def wait_for(session: Session, number: int, awaited: str) -> None:
    session.rows(f"""
        insert into pgqueue_message (dequeue_at, content, checks, after_policy, after_ids, awaited_id)
        select {2**63 - 1}, '{{}}', 1, 'finished', array[{awaited}], {awaited} from generate_series(1, {number}) as n
    """)


@pytest.mark.parametrize("awaited", ["1000000 + n", "1000000"])
def test_any_number_of_waiting_messages_costs_nothing(conninfo: str, awaited: str) -> None:
    """Neither a look, nor a claim, nor the end of a message that nobody waits for.

    In a database of its own: what others have left dead in these tables is read, too.
    """
    with empty_database(conninfo, "waiting") as database, session_in(database) as session:
        install(session)
        ended = session.create_batch(100)
        calls = {
            "select pgqueue_message_settle()": 20,
            "select count(*) from pgqueue_message_dequeue(p_queues => '{nowhere}')": 25,
            f"select count(*) from pgqueue_message_cancel('{{{','.join(map(str, ended))}}}'::bigint[])": 0,
        }
        before = {call: cost(session, call) for call in calls}
        wait_for(session, 20_000, awaited)
        for call, most in calls.items():
            each = cost(session, call)
            assert each.scans == before[call].scans, each
            assert each.buffers <= before[call].buffers * 1.1 + 20, each
            assert not most or each.buffers < most, each


def test_at_most_the_limit_of_messages_is_checked(session: Session) -> None:
    """Two that were told, and two whose time has come."""
    for _ in range(9):
        create_after(session, 2**62)
    settled = [session.value("pgqueue_message_settle", limit=2) for _ in range(9)]
    assert max(settled) <= 4
    assert sum(settled) == 9


def test_a_call_reads_some_megabytes_of_ids_however_many_were_written_by_hand(session: Session) -> None:
    awaited = session.create()
    for _ in range(3):
        session.rows(
            "insert into pgqueue_message (dequeue_at, in_line, content, check_at, checks, after_policy, after_ids) "
            "select 9223372036854775807, false, 'null', 0, 0, 'finished', array_agg(i.id order by i.id) || %s::bigint "
            "from (select -(random() * 9e18)::bigint from generate_series(1, 600000)) as i (id)",
            [awaited],
        )
    seen = []
    for _ in range(3):
        session.value("pgqueue_message_settle")
        seen.append(session.column("select checks from pgqueue_message where id <> %s order by id", [awaited]))
    assert [sum(checks > 0 for checks in row) for row in seen] == [1, 2, 3]


def test_a_sleeping_worker_is_woken_for_a_message_that_became_ready(connect: Connect) -> None:
    producer, listener = connect(), Listener(connect(), "pgqueue_a")
    create_after(producer, 2**62, queue="mail")
    see(producer, "a", asleep_ms=60_000, tasks=False)
    producer.value("pgqueue_message_settle")
    assert listener.heard(producer) == [("pgqueue_a", "mail")]


def test_concurrent_calls_release_each_message_once_without_waiting(connect: Connect) -> None:
    sessions = [connect() for _ in range(6)]
    for _ in range(100):
        create_after(sessions[0], 2**62, policy="succeeded")
    for session in sessions:
        session.rows("set lock_timeout = '1s'")

    def settle_all(session: Session) -> int:
        settled = 0
        while session.one("select exists (select from pgqueue_message where check_at is not null)"):
            settled += session.value("pgqueue_message_settle", limit=7)
        return settled

    assert sum(concurrently([partial(settle_all, session) for session in sessions])) == 100
    assert len(sessions[0].dequeue(200)) == 100


@pytest.mark.parametrize("who", ["settle", "dequeue"])
@pytest.mark.parametrize("what", ["a message", "an event"])
def test_what_came_while_the_clock_was_ahead_is_looked_at_when_it_is_right_again(
    session: Session, what: str, who: str
) -> None:
    session.set_clock(NOON)
    other = session.create(task="other")
    if what == "a message":
        waiting = session.value("pgqueue_message_create_after", after_ids=[other], content="tea", task="waiting")
        session.value("pgqueue_message_settle")
    else:
        waiting = other
        session.value("pgqueue_message_suspend", **token(session.take(tasks=True)), kind="event", event="paid")
        session.value("pgqueue_message_settle")
    session.set_clock(NOON + 86_400_000)
    if what == "a message":
        session.ids("pgqueue_message_cancel", ids=[other])
    else:
        session.value("pgqueue_event_emit", name="paid")
    session.set_clock(NOON + 1)
    if who == "settle":
        assert session.value("pgqueue_message_settle") == 1
    assert session.take(tasks=True).id == waiting
