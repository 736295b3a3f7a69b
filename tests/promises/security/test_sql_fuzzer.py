"""Whatever any role calls and writes, workers go on, and what others enqueue runs."""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue import functions
from tests.promises.security.conftest import ROLES, ROLES_FILE, _run
from tests.promises.security.fuzzing import ASKED
from tests.promises.security.sql_fuzzer import COLUMNS, Fuzzer
from tests.promises.security.test_roles import run
from tests.support.sessions import token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.promises.security.conftest import Guarded
    from tests.support.sessions import Session

pytestmark = pytest.mark.django_db

CALLS = int(ASKED or 500)
SEEDS = [secrets.randbits(32)] if ASKED else [1, 2]
WORKER: dict[str, Any] = {"queues": None, "exclude_queues": [], "hostname": "h", "pid": 1, "slots": 1}
NOTHING = "tests.support.site.tasks.nothing"
LATER = """
select relname::text from pg_class
where relname ~ '^pgqueue_attempt_\\d{8}$'
  and right(relname, 8) > to_char(now() at time zone 'UTC' + interval '7 days', 'YYYYMMDD')
"""
EMPTIED = """
delete from pgqueue_message; delete from pgqueue_attempt; delete from pgqueue_worker; delete from pgqueue_queue;
delete from pgqueue_schedule; delete from pgqueue_schedule_slot; delete from pgqueue_lane; delete from pgqueue_arrival;
delete from pgqueue_channel; delete from pgqueue_exchange; delete from pgqueue_ledger; delete from pgqueue_staged;
delete from pgqueue_lake; delete from pgqueue_replayed;
delete from pgqueue_rollup; delete from pgqueue_rollup_position; delete from pgqueue_edit; delete from pgqueue_ended;
delete from pgqueue_step; delete from pgqueue_event; delete from pgqueue_approval; delete from pgqueue_child;
delete from pgqueue_budget;
"""


@pytest.fixture(autouse=True, scope="module")
def without_partitions(guarded: Guarded) -> Iterator[None]:
    """Others find the database as it was made: consumers may have made or dropped partitions."""
    yield
    with guarded.session() as owner:
        for name in owner.column(LATER):
            owner.rows(f"drop table {name}")
    with guarded.session("consumer") as consumer:
        consumer.call("pgqueue_attempt_maintain")
    _run(guarded.conninfo, ROLES_FILE)


@pytest.fixture(autouse=True)
def emptied(guarded: Guarded) -> Iterator[None]:
    yield
    with guarded.session() as owner:
        owner.connection.execute(EMPTIED)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("who", [*ROLES, "nobody"])
def test_no_action_of_a_role_stops_the_others(guarded: Guarded, who: str, seed: int) -> None:
    chance = random.Random(f"{who} {seed}")
    with guarded.session() as owner:
        prepare(owner)
    with guarded.session(who) as session:
        session.rows("set statement_timeout = '20s'")
        session.rows("set pgqueue.now = '300000000000000'")
        fuzzer = Fuzzer(session, chance)
        while fuzzer.calls < CALLS:
            [deed] = chance.choices(
                [fuzzer.call, fuzzer.write, fuzzer.change_role, fuzzer.in_a_transaction], [60, 28, 6, 6]
            )
            deed()
    assert (fuzzer.done > CALLS / 50) == (who != "nobody"), f"{fuzzer.done} of {fuzzer.calls} were not refused"
    with guarded.session("producer") as producer, guarded.session("consumer") as consumer:
        innocent = everything_can_be_enqueued(producer)
        everything_can_be_read(guarded)
        upkeep_goes_on(consumer)
        assert innocent <= claimed(consumer)


def test_a_worker_runs_a_job_after_all_of_them(guarded: Guarded) -> None:
    for who in ROLES:
        with guarded.session() as owner:
            prepare(owner)
        with guarded.session(who) as session:
            session.rows("set statement_timeout = '20s'")
            fuzzer = Fuzzer(session, random.Random(f"{who} before a worker"))
            for number in range(CALLS // 2):
                (fuzzer.write if number % 2 else fuzzer.call)()
    with guarded.session("producer") as producer:
        innocent = producer.create({"args": [], "kwargs": {}}, queue="innocent", task=NOTHING)
    said = run(guarded, "consumer", "qworker", "--burst", "--processes", "1", "--threads", "2")
    assert "Traceback" not in said, said[-4000:]
    with guarded.session() as owner:
        assert owner.column("select status from pgqueue_attempt where message_id = %s", [innocent]) == ["succeeded"]


def prepare(owner: Session) -> None:
    """Something of each kind, to be spoiled."""
    owner.call("pgqueue_exchange_declare", name="orders")
    owner.call("pgqueue_binding_declare", exchange="orders", pattern="#", queue="mail")
    owner.call("pgqueue_channel_set", name="acme", max_concurrency=3)
    owner.call("pgqueue_schedule_declare", name="a.b", task="a.b", next_at=0, interval_ms=1000)
    owner.call(
        "pgqueue_worker_seen", id="w1", queues=None, exclude_queues=[], hostname="h", pid=1, slots=1, asleep_ms=60000
    )
    for number in range(5):
        owner.create(number, queue="mail", channel="acme" if number % 2 else None)
        owner.create({"args": [], "kwargs": {}}, task="a.b")
    first = owner.create("first")
    owner.call("pgqueue_message_create_after", after_ids=[first], content="then")
    owner.call("pgqueue_message_create_unique", unique_key="k", content="once")
    # Without the content: the one that another role has left may be nested too deeply for Python.
    held = owner.rows("select id, attempt, worker from pgqueue_message_dequeue(p_limit => 2, p_worker => 'w1')")
    owner.value("pgqueue_message_fail", **token(held[0]), error="no")


def everything_can_be_enqueued(producer: Session) -> set[int]:
    producer.rows("set statement_timeout = '20s'")
    key = secrets.token_hex()
    common = {"queue": "innocent", "channel": "innocent"}
    ids = [
        producer.create("tea", **common),
        producer.create("tea", queue="innocent"),
        producer.value("pgqueue_message_create_after", after_ids=[], content="then", **common),
        producer.call("pgqueue_message_create_unique", unique_key=secrets.token_hex(), content="once", **common)[
            0
        ].p_id,
        *producer.create_batch(3, **common),
        *producer.create_batch(2, unique_key=f"{key} many", queue="innocent")[:1],
    ]
    assert None not in ids
    return set(ids)


def everything_can_be_read(guarded: Guarded) -> None:
    """By a client that makes a datetime of each time, wherever its clock hangs."""
    with guarded.session() as owner:
        for zone in ("UTC", "Pacific/Kiritimati", "Etc/GMT+12"):
            owner.rows(f"set timezone = '{zone}'")
            for row in owner.rows(COLUMNS):
                # As workers do: JSON is read when somebody asks for it.
                read = f"{row.column}::text" if row.type.startswith("jsonb") else row.column
                owner.rows(f"select {read} from {row.table}")


def upkeep_goes_on(consumer: Session) -> None:
    consumer.rows("set statement_timeout = '20s'")
    consumer.call("pgqueue_message_expire", limit=1000)
    consumer.call("pgqueue_message_settle", limit=1000)
    consumer.call("pgqueue_attempt_maintain")
    consumer.call("pgqueue_channel_prune")
    consumer.call("pgqueue_schedule_prune")
    consumer.call("pgqueue_worker_seen", id="w2", **WORKER)
    consumer.call("pgqueue_worker_gone", id="w2")
    for queue in consumer.column("select pgqueue_message_queues()"):
        consumer.call("pgqueue_worker_wake", queue=queue)


def claimed(consumer: Session) -> set[int]:
    """All that can be claimed, as the Python of a worker claims it; and ended."""
    found: set[int] = set()
    for _ in range(200):
        taken = [
            message
            for tasks in (True, False)
            for message in functions.message_dequeue(consumer.connection, limit=100, worker="innocent", tasks=tasks)
        ]
        if not taken:
            break
        ends = [functions.Success(message.id, message.attempt) for message in taken]
        found |= functions.message_complete(consumer.connection, ends, worker="innocent")
    return found
