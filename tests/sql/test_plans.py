"""Every step of the queue is a bounded number of index probes, whatever has piled up.

The tables grow to a hundred times their size, with autovacuum off.  Each call is measured in a session that made its
plans while the tables were empty and in sessions that make them later, with statistics of an empty table, of a full one
and of none.  A plan that scans shows as buffers that grow with the table.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.functions.worker import IS_PARKED, IS_QUARANTINED
from tests.sql.words import see
from tests.support.cost import Cost, cost, index_names
from tests.support.databases import empty_database, install, session_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.support.sessions import Session

pytestmark = [pytest.mark.slow, pytest.mark.django_db]

SIZES = (1_000, 10_000, 100_000)
AHEAD = 2**62
READY_INDEX, DUE_INDEX = "pgqueue_message_ready_ix", "pgqueue_message_due_ix"
SCHEDULED_INDEX, LOCKED_INDEX = "pgqueue_message_scheduled_ix", "pgqueue_message_locked_ix"
CHECK_INDEX, AWAITED_INDEX, PRIMARY_KEY = (
    "pgqueue_message_check_ix",
    "pgqueue_message_awaited_ix",
    "pgqueue_message_pkey",
)
ALONE_INDEX, LANE_INDEX = "pgqueue_message_alone_ix", "pgqueue_message_lane_ix"
PARKED_INDEX, UNKNOWN_INDEX = "pgqueue_message_parked_ix", "pgqueue_message_unknown_ix"
SMALL = {"pgqueue_queue", "pgqueue_worker", "pgqueue_queue_pkey", "pgqueue_worker_pkey"}  # a few rows, whatever happens
# empty where nobody waits for what has ended, and where no durable task has children
OF_OTHERS = {"pgqueue_ended", "pgqueue_ended_pkey", "pgqueue_child_parent_ix"}
OF_CHANNELS = {
    "pgqueue_arrival_pkey",
    "pgqueue_lane_pkey",
    "pgqueue_lane_turn_ix",
    "pgqueue_lane_next_ix",
}  # empty where nobody uses channels


@contextmanager
def queue(conninfo: str) -> Iterator[tuple[str, Session]]:
    """A queue of its own that nothing maintains, with a session that has seen it empty."""
    with empty_database(conninfo, "plans") as database, session_in(database) as session:
        install(session)
        for table in session.column(
            "select oid::regclass::text from pg_class where relname ~ '^pgqueue' and relkind = 'r'"
        ):
            session.rows(f"alter table {table} set unlogged")
            session.rows(f"alter table {table} set (autovacuum_enabled = off)")
        session.rows("analyze")
        yield database, session


def pretend_that_nobody_analysed(session: Session) -> None:
    session.rows("delete from pg_statistic where starelid = 'pgqueue_message'::regclass")
    session.rows("update pg_class set reltuples = -1, relpages = 0 where oid = 'pgqueue_message'::regclass")


def plan_while_empty(session: Session, calls: Iterable[str]) -> None:
    """PostgreSQL keeps a plan for all parameters at the sixth call, if it looks as good as the five before it."""
    for call in calls:
        for _ in range(4):
            cost(session, f"select * from {call}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Rows that pile up, and calls of a consumer meanwhile."""

    dequeue_at: str = "n"
    priority: str = "0"
    queue: str = "'default'"
    task: str = "null"
    held: bool = False
    after: bool = False
    """Waits for others, and nobody looks at it for now."""
    in_line: bool = True
    and_a_few: str = ""
    """Rows that are there at every size: (dequeue_at, priority, task)."""
    paused: bool = False
    turn: str = "q1"
    """The queue behind which a round over many queues begins: without it that would be anywhere."""
    calls: dict[str, int] = field(default_factory=dict)
    """Calls of SQL functions, and how many entries of the indexes of what waits each may read at most."""

    def grow(self, session: Session, first: int, last: int) -> None:
        lock = f"{AHEAD}, now(), 'w1', 1" if self.held else "null::bigint, null::timestamptz, null, 0"
        after = (
            f"{AHEAD}, 1, 'finished', array[100000000 + n], 100000000 + n"
            if self.after
            else "null::bigint, null::integer, null, null::bigint[], null::bigint"
        )
        session.rows(f"""
            insert into pgqueue_message
                (dequeue_at, priority, queue, task, content, unlock_at, locked_at, worker, attempt, check_at, checks,
                 after_policy, after_ids, awaited_id, in_line)
            select {self.dequeue_at}, {self.priority}, {self.queue}, {self.task}, '{{}}', {lock}, {after},
                   {self.in_line}
            from generate_series({first + 1}, {last}) as n
        """)

    def begin(self, session: Session) -> None:
        if self.paused:
            session.rows(f"select pgqueue_queue_pause({self.queue})")
        if self.and_a_few:
            session.rows(f"""
                insert into pgqueue_message (dequeue_at, priority, task, content)
                select few.*, '{{}}' from generate_series(1, 150), (values {self.and_a_few}) as few
            """)


ONE, HUNDRED = "pgqueue_message_dequeue()", "pgqueue_message_dequeue(p_limit => 100)"
ONE_TASK, HUNDRED_TASKS = (
    "pgqueue_message_dequeue(p_tasks => true)",
    "pgqueue_message_dequeue(p_limit => 100, p_tasks => true)",
)
NEXT, NEXT_TASK = "pgqueue_message_next_at()", "pgqueue_message_next_at(p_tasks => true)"

BACKLOGS = {
    "ready tasks, before a few raw messages in the same queue": Backlog(
        priority="7",
        task="'shop.tasks.send'",
        and_a_few="(1, 0, null)",
        calls={
            ONE: 10,
            HUNDRED: 110,
            NEXT: 10,
            ONE_TASK: 10,
            HUNDRED_TASKS: 110,
            NEXT_TASK: 10,
            "pgqueue_message_dequeue(p_queues => '{default}')": 10,
            "pgqueue_message_dequeue(p_queues => '{nowhere}')": 5,
            "pgqueue_message_dequeue(p_exclude_queues => '{default}')": 5,
            "pgqueue_message_dequeue(p_limit => 10, p_tasks => true, p_floor_queues => '{default}',"
            " p_floor_priorities => '{7}', p_floor_dequeue_ats => '{500}', p_floor_ids => '{0}')": 15,
            "pgqueue_message_queues()": 5,
        },
    ),
    "scheduled in hundreds of queues at all priorities": Backlog(
        dequeue_at=f"{AHEAD} + n",
        priority="100 - n / 400 % 201",
        queue="'q' || n % 400",
        in_line=False,
        and_a_few="(1, -100, null)",
        calls={
            ONE: 220,
            HUNDRED: 320,
            NEXT: 220,
            "pgqueue_message_dequeue(p_queues => '{default,q7,q8}')": 420,
            "pgqueue_message_next_at(p_queues => '{q7}')": 210,
        },
    ),
    "due at once in hundreds of queues at all priorities": Backlog(
        priority="100 - n / 400 % 201",
        queue="'q' || n % 400",
        in_line=False,
        calls={ONE: 1_000, HUNDRED: 1_500, NEXT: 220},
    ),
    "due at once in a paused queue": Backlog(
        in_line=False,
        paused=True,
        calls={ONE: 1_000, "pgqueue_message_dequeue(p_brief => false)": 2_500},
    ),
    "ready in hundreds of queues at all priorities": Backlog(
        priority="100 - n / 400 % 201",
        queue="'q' || n % 400",
        calls={
            ONE: 200,
            HUNDRED: 500,
            NEXT: 110,
            "pgqueue_message_dequeue(p_queues => '{q7,q8,q9}')": 15,
            "pgqueue_message_dequeue(p_queues => '{nowhere}')": 420,
        },
    ),
    "ready in hundreds of queues, of which the round has come to the last": Backlog(
        priority="100 - n / 400 % 201", queue="'q' || n % 400", turn="q99", calls={HUNDRED: 500}
    ),
    "one in each queue": Backlog(
        queue="'q' || n", calls={ONE: 200, HUNDRED: 500, NEXT: 110, "pgqueue_message_queues(10)": 110}
    ),
    "waiting for others": Backlog(
        dequeue_at="9223372036854775807",
        after=True,
        in_line=False,
        and_a_few="(1, -1, null)",
        calls={
            ONE: 10,
            NEXT: 10,
            "pgqueue_message_settle()": 1,
            "pgqueue_message_cancel('{7,8,9}'::bigint[])": 1,
        },
    ),
}


@pytest.mark.parametrize("name", BACKLOGS)
def test_consumer_calls_cost_the_same_with_any_backlog(conninfo: str, name: str) -> None:
    backlog = BACKLOGS[name]
    costs: dict[str, dict[str, Cost]] = {call: {} for call in backlog.calls}

    def measure(session: Session, when: str) -> None:
        for call in backlog.calls:
            session.rows(f"set pgqueue.turn_of_raw = '{backlog.turn}'")
            costs[call][when] = cost(session, f"select * from {call}")

    def measure_afresh(when: str) -> None:
        with session_in(database) as session:
            measure(session, when)

    with queue(conninfo) as (database, session):
        plan_while_empty(session, backlog.calls)
        backlog.begin(session)
        for size_before, size in zip((0, *SIZES), SIZES, strict=False):
            backlog.grow(session, size_before, size)
            measure(session, f"{size:,} rows, planned while empty")
            measure_afresh(f"{size:,} rows, analysed while empty")
        pretend_that_nobody_analysed(session)
        measure_afresh("never analysed")
        session.rows("analyze")
        measure_afresh("analysed full")

    for call, measured in costs.items():
        _assert_flat(call, measured, most_entries=backlog.calls[call])


@pytest.mark.parametrize(
    ("rows", "most_entries"),
    [
        ("'t', 0, true, null, 'default', 0", 10_100),
        ("'t', 9e15, false, null, 'default', 0", 10_100),
        ("'t', 0, false, null, 'default', 0", 10_100),
        ("'t', 0, true, 'acme', 'default', 0", 10_100),
        ("null, 0, true, null, 'default', 0", 10_100),
        ("'t', 0, false, null, 'paused', n % 201 - 100", 300),
        ("'t', 0, true, null, 'paused', n % 201 - 100", 500),
        ("'t', 0, false, null, 'q' || n % 60, n % 201 - 100", 20_500),
        ("'t', 9e15, true, 'c' || n, 'default', 0", 35_000),
        ("'t', 0, true, 'c' || n % 12000, 'default', n % 3", 35_000),
    ],
    ids=[
        "ready",
        "scheduled",
        "due",
        "in a channel",
        "raw",
        "due in a paused queue at all priorities",
        "ready in a paused queue at all priorities",
        "due in many queues at all priorities",
        "scheduled in many lanes",
        "ready in many lanes",
    ],
)
def test_the_backlog_function_costs_the_same_with_any_backlog(conninfo: str, rows: str, most_entries: int) -> None:
    calls = ("pgqueue_backlog()", "pgqueue_backlog('{default}')", "pgqueue_message_attention_at()")
    costs: dict[str, list[Cost]] = {call: [] for call in calls}
    with queue(conninfo) as (_, session):
        session.call("pgqueue_queue_pause", queue="paused")
        plan_while_empty(session, calls)
        for first, last in ((1, 15_000), (15_001, 60_000)):
            session.rows(
                "insert into pgqueue_message (content, task, dequeue_at, in_line, channel, queue, priority) "
                f"select '{{}}', {rows} from generate_series({first}, {last}) as n"
            )
            for call in calls:
                costs[call].append(cost(session, f"select * from {call}"))
    for call, (few, many) in costs.items():
        assert not {"pgqueue_message", "pgqueue_arrival", "pgqueue_lane"} & many.read, f"{call} reads a table"
        assert many.probes <= few.probes, call
        assert max(sum(few.entries.values()), sum(many.entries.values())) <= most_entries, call


def _assert_flat(call: str, measured: dict[str, Cost], *, most_entries: int) -> None:
    shown = "\n".join(
        f"{each.buffers:8,} buffers  {each.scans}  {each.entries}  {when}" for when, each in measured.items()
    )
    small = next(iter(measured.values()))
    for each in measured.values():
        assert each.rows == small.rows
        of_waiting = (READY_INDEX, DUE_INDEX, SCHEDULED_INDEX)
        known = {
            *of_waiting,
            LANE_INDEX,
            LOCKED_INDEX,
            CHECK_INDEX,
            AWAITED_INDEX,
            PRIMARY_KEY,
            *SMALL,
            *OF_OTHERS,
            *OF_CHANNELS,
        }
        assert each.read <= known, f"{call} scans a table:\n{shown}"
        read = sum(each.entries.get(index, 0) for index in of_waiting)
        assert read <= most_entries, f"{call} reads entries that it does not take:\n{shown}"
        assert each.entries.get(LOCKED_INDEX, 0) <= 1, f"{call} reads locks that have not run out:\n{shown}"
        assert each.entries.get(CHECK_INDEX, 0) <= 25, f"{call} reads what waits for others:\n{shown}"
        # A round over many queues begins anywhere, and one that comes to their end goes on with the first.
        assert each.probes <= max(small.probes * 1.1 + 2, most_entries), (
            f"{call} probes more often when the table grows:\n{shown}"
        )
        # An index of a hundred times as many entries has a level more, or two: so many pages more for each probe, for
        # each row that a claim finds by the primary key, and for each entry that it gets there and among the locks.
        written = small.rows + each.entries.get(DUE_INDEX, 0)  # each row that comes into line gets entries, too
        more_probes = max(0, each.probes - small.probes)
        assert each.buffers <= small.buffers + 1.5 * small.probes + 5 * more_probes + 5 * written + 75, (
            f"{call} reads more when the table grows:\n{shown}"
        )


LINE_INDEX = "pgqueue_lane_turn_ix"


def test_a_dequeue_costs_the_same_whatever_the_number_of_channels(conninfo: str) -> None:
    """From a hundred other channels to a hundred thousand, whose messages are scheduled; fifty have something to do."""
    hundred = "pgqueue_message_dequeue(p_limit => 100)"
    measured: dict[str, Cost] = {}
    with queue(conninfo) as (database, session):
        plan_while_empty(session, [hundred, NEXT])
        session.rows("""
            insert into pgqueue_message (dequeue_at, content, channel)
            select n, '{}', 'busy ' || n % 50 from generate_series(1, 20000) as n
        """)
        while session.one("select pgqueue_lane_arm()"):
            pass
        for before, number in ((0, 100), (100, 10_000), (10_000, 100_000)):
            session.rows(
                f"insert into pgqueue_channel (name) select n from generate_series({before + 1}, {number}) as n"
            )
            session.rows(f"""
                insert into pgqueue_lane (channel, queue, raw, next_at)
                select n, 'default', true, {AHEAD} from generate_series({before + 1}, {number}) as n
            """)
            measured[f"{number:,} channels, planned while empty"] = cost(session, f"select * from {hundred}")
            with session_in(database) as fresh:
                measured[f"{number:,} channels, never analysed"] = cost(fresh, f"select * from {hundred}")
        session.rows("analyze")
        with session_in(database) as fresh:
            measured["100,000 channels, analysed"] = cost(fresh, f"select * from {hundred}")
            assert cost(fresh, f"select * from {NEXT}").buffers < 60
    shown = "\n".join(f"{each.buffers:8,} buffers  {each.entries}  {when}" for when, each in measured.items())
    small = next(iter(measured.values()))
    for each in measured.values():
        assert each.rows == 100
        assert each.entries[LINE_INDEX] <= 70, f"lanes are looked at that have nothing to do:\n{shown}"
        assert each.entries[LANE_INDEX] <= 250, f"messages are looked at that are not taken:\n{shown}"
        assert each.read & {"pgqueue_message", "pgqueue_lane", "pgqueue_channel"} == set(), shown
        # A page more for each message that it takes.
        assert each.buffers <= 1.25 * small.buffers + each.rows + 50, f"it reads more with more channels:\n{shown}"


def test_a_lane_costs_the_same_with_any_number_of_waiting_messages(conninfo: str) -> None:
    """Also where most of it is scheduled at a higher priority."""
    ten = "pgqueue_message_dequeue(p_limit => 10)"
    costs: list[Cost] = []
    with queue(conninfo) as (_, session):
        session.rows("""
            insert into pgqueue_message (dequeue_at, content, channel)
            select n, '1', 'a' from generate_series(1, 99) as n
        """)
        for before, size in ((0, 1000), (1000, 100_000)):
            session.rows(f"""
                insert into pgqueue_message (dequeue_at, content, priority, channel)
                select {AHEAD} + n, '{{}}', n % 7, 'a' from generate_series({before + 1}, {size}) as n
            """)
            while session.one("select pgqueue_lane_arm()"):
                pass
            session.rows("vacuum pgqueue_arrival")
            costs.append(cost(session, f"select * from {ten}"))
    assert [each.rows for each in costs] == [10, 10]
    assert costs[1].entries[LANE_INDEX] <= 1.2 * costs[0].entries[LANE_INDEX] + 5 < 90
    assert costs[1].buffers <= 1.5 * costs[0].buffers + 50, costs


@pytest.fixture(scope="module")
def half_held(test_database: str) -> Iterator[tuple[str, Session, Session]]:
    """Half a million messages that one worker holds (ids from 1 on), and half a million that wait behind them."""
    with queue(test_database) as (database, session), session_in(database) as early:
        plan_while_empty(early, [*BY_ID, "pgqueue_message_expire()"])
        Backlog(held=True).grow(session, 0, HALF)
        Backlog().grow(session, 0, HALF)
        yield database, session, early


def test_an_empty_quarantine_costs_one_probe_with_any_backlog(conninfo: str) -> None:
    calls = ("pgqueue_quarantine_waits()", "pgqueue_quarantine_dequeue()", f"{IS_QUARANTINED} as q")

    def measure(session: Session, when: str) -> None:
        for call in calls:
            each = cost(session, f"select * from {call}")
            assert set(each.entries) <= {ALONE_INDEX}, f"{call}, {when}: {each}"
            assert each.read <= {ALONE_INDEX, *SMALL}, f"{call}, {when}: {each}"
            assert each.buffers < 20, f"{call}, {when}: {each}"

    with queue(conninfo) as (database, session):
        plan_while_empty(session, calls)
        Backlog(held=True).grow(session, 0, 50_000)
        Backlog().grow(session, 50_000, 100_000)
        measure(session, "planned while empty")
        pretend_that_nobody_analysed(session)
        with session_in(database) as fresh:
            measure(fresh, "never analysed")
        session.rows("analyze")
        with session_in(database) as fresh:
            measure(fresh, "analysed full")


PARKED = "'{default}', '{shop.tasks.t1}'"
OF_PARKED = {
    "pgqueue_message_parked(p_count => 50)": 550,
    "pgqueue_message_parked(p_count => 0)": 30,
    "pgqueue_message_parked_calls('default', 'shop.tasks.t1', p_limit => 100)": 105,
    "pgqueue_message_parked_calls('default', 'shop.tasks.t1', 500, 0, 20)": 25,
    f"pgqueue_message_unpark({PARKED}, 100)": 110,
    "pgqueue_message_unpark('{}', '{}', 0, array[201, 202, 203, 211])": 10,
    f"pgqueue_message_unpark({PARKED}, 1)": 5,
    f"pgqueue_message_unknown_fail({PARKED}, 0, 10)": 25,
    f"pgqueue_message_unknown_fail({PARKED}, 3600, 10)": 5,
    f"{IS_PARKED} as q": 5,
}
# A claim reads each message that it takes in the line, and finds it by the primary key, which has two versions of it.
BESIDE_PARKED = {ONE_TASK: 20, HUNDRED_TASKS: 330, NEXT_TASK: 20, "pgqueue_message_settle()": 5}


@pytest.mark.parametrize("channel", ["null", "'c'"])
def test_a_flood_of_parked_messages_costs_other_claims_nothing_and_is_read_by_index(
    conninfo: str, channel: str
) -> None:
    """Ten tasks that nobody knows, at one priority, before a few that are known."""
    calls = OF_PARKED | BESIDE_PARKED
    costs: dict[str, dict[str, Cost]] = {call: {} for call in calls}

    def measure(session: Session, when: str) -> None:
        for call in calls:
            session.rows("begin")
            costs[call][when] = cost(session, f"select * from {call}")
            session.rows("rollback")

    def grow(session: Session, first: int, last: int) -> None:
        session.rows(f"""
            insert into pgqueue_message
                (dequeue_at, queue, task, channel, content, in_line, unknown_since, parked_at, last_error)
            select {2**63 - 2}, 'default', 'shop.tasks.t' || n % 10, {channel}, '{{}}', false, n, n, 'unknown'
            from generate_series({first + 1}, {last}) as n
        """)

    with queue(conninfo) as (database, session):
        see(session, "w1")
        session.call("pgqueue_worker_lacks", id="w1", lacks=["shop.tasks.t1"])
        plan_while_empty(session, calls)
        session.create_batch(200, task="shop.tasks.known")
        sizes = (1_000, 10_000, 100_000)
        for size_before, size in zip((0, *sizes), sizes, strict=False):
            grow(session, size_before, size)
            measure(session, f"{size:,} parked, planned while empty")
            with session_in(database) as fresh:
                measure(fresh, f"{size:,} parked, analysed while empty")
        pretend_that_nobody_analysed(session)
        with session_in(database) as fresh:
            measure(fresh, "never analysed")
        session.rows("analyze")
        with session_in(database) as fresh:
            measure(fresh, "analysed full")

    for call, measured in costs.items():
        shown = "\n".join(f"{each.buffers:8,} buffers  {each.entries}  {when}" for when, each in measured.items())
        print(f"{call}\n{shown}")
        fewest, most = (pick(each.buffers for each in measured.values()) for pick in (min, max))
        assert most <= 2 * fewest + 60, f"{call} reads more the more are parked:\n{shown}"
        for each in measured.values():
            assert sum(each.entries.values()) <= calls[call] + 20, f"{call}:\n{shown}"
            assert "pgqueue_message" not in each.scans, f"{call} scans:\n{shown}"


HALF = 500_000
HELD = f"array(select n from generate_series(1, {HALF}, {HALF // 100}) as n)"
WAITING = f"array(select n from generate_series({HALF + 1}, {2 * HALF}, {HALF // 100}) as n)"
ATTEMPTS = "array_fill(1, array[100])"
BY_ID = {
    f"pgqueue_message_complete({HELD}, {ATTEMPTS}, 'w1')": 100,
    "pgqueue_message_complete(77, 1, 'w1')": 1,
    f"pgqueue_message_heartbeat({HELD}, {ATTEMPTS}, 'w1')": 100,
    "pgqueue_message_heartbeat(77, 1, 'w1')": 1,
    "pgqueue_message_keep(77, 1, 'w1')": 1,
    f"pgqueue_message_release({HELD}, {ATTEMPTS}, 'w1')": 100,
    f"pgqueue_message_abandon({HELD}, {ATTEMPTS}, 'w1')": 100,
    f"pgqueue_message_park({HELD}, {ATTEMPTS}, 'w1', array_fill('unknown'::text, array[100]))": 200,
    "pgqueue_message_defer(77, 1, 'w1')": 1,
    "pgqueue_message_defer(77, 1, 'w1', p_error => '{}')": 1,
    "pgqueue_message_fail(77, 1, 'w1')": 1,
    "pgqueue_message_cancel(77, 1, 'w1')": 1,
    "pgqueue_message_progress(77, 1, 'w1', '{}')": 1,
    f"pgqueue_message_request_cancel({HELD})": 100,
    f"pgqueue_message_cancellations({HELD}, 'w1')": 100,
    f"pgqueue_message_cancel({WAITING})": 100,
    f"pgqueue_message_cancel({HALF + 77})": 1,
    f"pgqueue_message_reschedule({WAITING})": 100,
}


def test_calls_with_ids_find_their_messages_by_the_primary_key(half_held: tuple[str, Session, Session]) -> None:
    """Any other index would read all that are held, or all that wait."""
    database, session, early = half_held

    def measure(session: Session, when: str) -> None:
        for call, number in BY_ID.items():
            each = cost(session, f"select * from {call}")
            assert each.read & {"pgqueue_message", READY_INDEX, LOCKED_INDEX} == set(), f"{call}, {when}: {each}"
            assert number <= each.entries[PRIMARY_KEY] <= 4 * number, f"{call}, {when}: {each}"
            assert each.buffers <= 40 * number + 60, f"{call}, {when}: {each}"

    measure(early, "planned while empty")
    with session_in(database) as fresh:
        measure(fresh, "analysed while empty")
    pretend_that_nobody_analysed(session)
    with session_in(database) as fresh:
        measure(fresh, "never analysed")
    session.rows("analyze pgqueue_message")
    with session_in(database) as fresh:
        measure(fresh, "analysed full")


def test_locked_messages_do_not_slow_the_search_for_waiting_ones(half_held: tuple[str, Session, Session]) -> None:
    database, _, early = half_held
    with session_in(database) as fresh:
        for session in (early, fresh):
            for call, most_entries in {ONE: 10, HUNDRED: 110, NEXT: 10, "pgqueue_message_queues()": 5}.items():
                each = cost(session, f"select * from {call}")
                assert each.entries[READY_INDEX] <= most_entries
                assert each.entries.get(LOCKED_INDEX, 0) == 0
                assert each.buffers < 2000
            assert cost(session, "select pgqueue_message_expire()").buffers < 15


def test_expired_locks_are_found_among_many_that_are_not(half_held: tuple[str, Session, Session]) -> None:
    _, session, early = half_held
    session.rows(f"update pgqueue_message set unlock_at = id where id % {HALF // 500} = 7 and worker is not null")
    each = cost(early, "select pgqueue_message_expire()")
    assert {name for name in each.read if not name.endswith("_message_id_idx")} == {LOCKED_INDEX, PRIMARY_KEY}
    assert each.entries[LOCKED_INDEX] <= 110
    assert each.buffers < 100 * 60


def test_the_history_is_read_by_message_by_id_and_by_time_without_scanning_it(conninfo: str) -> None:
    """The indexes pgqueue_attempt_message_ix, pgqueue_attempt_id_ix and pgqueue_attempt_finished_ix."""
    with queue(conninfo) as (_, session):
        session.rows("set timezone = 'UTC'")
        session.rows("""
            insert into pgqueue_attempt
                (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, status, queue, content)
            select n, 0, now(), current_date + n * interval '0.2 seconds', 1, 0, true, 'succeeded', 'default', '{}'
            from generate_series(1, 800000) as n
        """)
        by_message, by_id = (
            f"select * from pgqueue_attempt where {key} = 500000 order by id" for key in ("message_id", "id")
        )
        again = "select pgqueue_attempt_enqueue('{500000,500001}')"
        _assert_read_by_index(session, {by_message: 1, by_id: 1, again: 2})
        session.rows("vacuum analyze pgqueue_attempt")
        _assert_read_by_index(session, {by_message: 1, by_id: 1, again: 2})

        # In pgqueue_attempt_error_ix: errors are few, and are found without those who succeeded.
        session.rows("update pgqueue_attempt set status = 'failed' where id % 100000 = 0")
        errors = "select * from pgqueue_attempt where status in ('failed', 'retried', 'lost') order by id desc limit 50"
        _assert_read_by_index(session, {errors: 8})

        minute = (
            "finished_at >= current_date + interval '7 hours' and finished_at < current_date + interval '421 minutes'"
        )
        by_time = f"select * from pgqueue_attempt where {minute}"
        assert any("_finished_at_" in name for name in index_names(session, by_time))
        pages = session.one("select sum(relpages) from pg_class where relname ~ '^pgqueue_attempt_2' and relkind = 'r'")
        found = cost(session, by_time)
        assert found.rows == 300
        assert found.buffers < pages / 20


def _assert_read_by_index(session: Session, statements: dict[str, int]) -> None:
    for statement, rows in statements.items():
        each = cost(session, statement)
        assert each.rows == rows
        assert each.buffers < 150, f"{statement}: {each}"
        scanned = [entries for name, entries in each.entries.items() if not name.endswith("_idx")]
        assert sum(scanned) <= rows, f"{statement} scans partitions: {each}"


def test_unique_keys_are_looked_up_in_their_index(session: Session) -> None:
    session.rows("set enable_seqscan = off")
    holds = "cancel_requested_at is null and (attempt = 0 or not unique_until_started)"
    names = index_names(session, f"select * from pgqueue_message where unique_key = 'invoice 7' and {holds}")
    assert names == {"pgqueue_message_unique_key_ix"}


def test_a_waiter_is_found_by_its_event_among_many_that_are_suspended(conninfo: str) -> None:
    """The index pgqueue_message_suspended_ix.  Half of them wait for a time, and a dequeue meets none of them."""
    with queue(conninfo) as (_, session):
        session.create(task="t")
        dequeue = "select * from pgqueue_message_dequeue(p_tasks => true)"
        alone = cost(session, dequeue)
        session.rows(f"""
            insert into pgqueue_message (
                dequeue_at, content, task, in_line, attempt, suspended_attempt, awaited_event)
            select case when n % 2 = 1 then 9223372036854775807 else {AHEAD} + n end, '{{}}', 't', false, 1, 1,
                   case when n % 2 = 1 then 'paid:' || n end
            from generate_series(1, 50000) as n
        """)
        for analyzed in (False, True):
            if analyzed:
                session.rows("vacuum analyze pgqueue_message")
            among = cost(session, dequeue)
            assert among.rows == 1
            assert among.buffers < alone.buffers + 20, among
            assert among.entries.get(DUE_INDEX, 0) <= 3, among
            name = f"paid:{5 + 2 * analyzed}"
            session.value("pgqueue_event_emit", name=name)
            arrive = cost(session, f"select pgqueue_event_arrive('{{{name}}}')")
            assert arrive.rows == 1
            assert arrive.buffers < 150, arrive
            assert arrive.entries.get("pgqueue_message_suspended_ix", 0) <= 3, arrive
            session.rows("delete from pgqueue_ended")


def test_the_drop_of_a_day_looks_at_those_who_wait_and_at_that_day_alone(conninfo: str) -> None:
    """By pgqueue_message_awaited_ix and pgqueue_message_check_ix, among many messages that wait for nobody."""
    with queue(conninfo) as (_, session):
        session.rows("set timezone = 'UTC'")
        for day in (1, 2):
            session.rows(f"select pgqueue_attempt_partition(current_date - {day})")
        old, young = session.column(
            "select relname::text from pg_class where relkind = 'r' and relname ~ '^pgqueue_attempt_2' order by 1"
        )[:2]
        keep = "select pgqueue_child_keep(current_date - 2)"
        costs = []
        for before, size in ((0, 1000), (1000, 10_000), (10_000, 100_000)):
            Backlog().grow(session, before, size)
            session.rows(f"""
                insert into pgqueue_attempt
                    (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, status, queue)
                select -n, 0, now(), current_date - 1 + interval '1 hour', 1, 0, true, 'failed', 'default'
                from generate_series({before + 1}, {size}) as n
            """)
            if before == 0:
                session.rows("""
                    insert into pgqueue_message
                        (dequeue_at, content, in_line, after_policy, after_ids, awaited_id, check_at, checks)
                    select 0, '1', false, 'succeeded', array[-n, 5], case when n % 2 = 0 then 5 end,
                           case when n % 2 = 1 then 1 end, 1
                    from generate_series(1, 100) as n
                """)
            for analyzed in (False, True):
                if analyzed:
                    session.rows("analyze")
                costs.append(cost(session, keep))
        for each in costs:
            assert "pgqueue_message" not in each.scans, each
            assert not any(name.startswith(young) for name in each.read), f"it reads another day than {old}: {each}"
            assert each.buffers <= 2 * costs[0].buffers + 60, costs


def test_retention_of_steps_looks_at_each_day_of_the_history_once(conninfo: str) -> None:
    """And not at each of them for each message that had steps on the old day."""
    with queue(conninfo) as (_, session):
        session.rows("set timezone = 'UTC'")
        session.rows("select pgqueue_attempt_partition(current_date - n) from generate_series(0, 19) as n")
        session.rows("select pgqueue_step_partition(current_date - n) from unnest(array[0, 30]) as n")
        session.rows("""
            insert into pgqueue_step (message_id, recorded_at, finished_at, attempt, name, kind, status)
            select n, d.at, d.at, 1, 'one', 'step', 'done'
            from generate_series(1, 5000) as n, (select current_date - 30 + interval '1 hour') as d (at)
        """)
        session.rows("""
            insert into pgqueue_attempt
                (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, status, queue)
            select 5000 + n, 0, now(), current_date - n % 20 + interval '1 hour', 1, 0, true, 'succeeded', 'default'
            from generate_series(0, 59999) as n
        """)
        session.rows("analyze")
        each = cost(session, "select pgqueue_step_maintain(0, 20)")
        looks = {name: scans for name, scans in each.scans.items() if name.startswith("pgqueue_attempt_")}
        assert max(looks.values()) <= 2, looks
        assert sum(each.entries[name] for name in looks) < 100, each.entries


def test_every_index_of_the_queue_is_named_in_a_test_of_this_module(session: Session) -> None:
    indexes = session.column("""
        select i.relname::text from pg_index x
        join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
        where t.relname in ('pgqueue_message', 'pgqueue_attempt')
    """)
    own_text = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in indexes if name not in own_text] == []
