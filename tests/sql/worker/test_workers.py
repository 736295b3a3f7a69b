"""Workers say who they are, what they lack, and when they go."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from django_pgqueue.values.versions import is_version, key
from tests.sql.words import WORKER, see, worker
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

# pgqueue_worker_seen: workers say that they are alive


def test_the_first_call_registers_the_worker(session: Session) -> None:
    session.set_clock(NOON)
    see(session, queues=["mail"], exclude_queues=["spam"])
    row = worker(session)
    assert (row.queues, row.exclude_queues, row.hostname, row.pid, row.slots) == (["mail"], ["spam"], "host", 7, 4)
    assert row.asleep_until is None
    assert row.seen_at.timestamp() * 1000 == NOON


def test_later_calls_renew_when_it_was_seen_and_keep_when_it_started(session: Session) -> None:
    session.set_clock(NOON)
    see(session)
    started_at = worker(session).started_at
    session.set_clock(NOON + 5000)
    see(session, slots=2)
    row = worker(session)
    assert (row.seen_at.timestamp() * 1000, row.slots, row.started_at) == (NOON + 5000, 2, started_at)


def test_asleep_ms_marks_the_worker_asleep_and_its_absence_awake(session: Session) -> None:
    session.set_clock(NOON)
    see(session, asleep_ms=1500)
    assert worker(session).asleep_until == NOON + 1500
    see(session)
    assert worker(session).asleep_until is None


def test_a_worker_runs_tasks_by_default(session: Session) -> None:
    see(session, "a")
    see(session, "b", tasks=False)
    assert (worker(session, "a").tasks, worker(session, "b").tasks) == (True, False)


# pgqueue_worker_gone: workers sign off


def _workers(session: Session) -> list[str]:
    return session.column("select id from pgqueue_worker order by id")


def test_a_worker_that_signs_off_is_deleted_and_others_stay(session: Session) -> None:
    for name in ("a", "b"):
        see(session, name)
    session.call("pgqueue_worker_gone", id="a")
    assert _workers(session) == ["b"]


def test_workers_that_died_without_signing_off_are_deleted(session: Session) -> None:
    for name, seen in (("long silent", NOON - 600_001), ("just silent", NOON - 600_000), ("speaking", NOON)):
        session.set_clock(seen)
        see(session, name)
    session.set_clock(NOON)
    session.call("pgqueue_worker_gone", id="somebody else")
    assert _workers(session) == ["just silent", "speaking"]


def test_the_silence_limit_may_be_given(session: Session) -> None:
    session.set_clock(NOON)
    see(session, "a")
    session.set_clock(NOON + 1001)
    session.call("pgqueue_worker_gone", id="b", silent_ms=1000)
    assert _workers(session) == []


def test_a_worker_with_an_announced_silence_stays(session: Session) -> None:
    session.set_clock(NOON - 700_000)
    see(session, "a")
    session.rows("update pgqueue_worker set silent_until = %s", [NOON + 1])
    session.set_clock(NOON)
    session.call("pgqueue_worker_gone", id="b")
    assert _workers(session) == ["a"]
    session.set_clock(NOON + 1)
    session.call("pgqueue_worker_gone", id="b")
    assert _workers(session) == []


# pgqueue_worker_lacks: workers record which tasks of parked messages they do not know


def lack(session: Session, *tasks: Any, of: str = "host-1") -> None:
    session.call("pgqueue_worker_lacks", id=of, lacks=list(tasks))


def test_the_list_is_recorded_until_the_worker_lacks_nothing(session: Session) -> None:
    see(session)
    assert worker(session).lacks is None
    lack(session, "a", "b")
    see(session, slots=2)
    assert worker(session).lacks == ["a", "b"]
    lack(session)
    assert worker(session).lacks is None


def test_a_task_that_it_knows_and_whose_arguments_it_cannot_take_is_recorded_apart(session: Session) -> None:
    see(session)
    for lacks, refuses in (["a"], ["b"]), (["a"], ["c"]), ([], ["c"]):
        session.call("pgqueue_worker_lacks", id="host-1", lacks=lacks, refuses=refuses)
        assert (worker(session).lacks or [], worker(session).refuses) == (lacks, refuses)
    lack(session)
    assert worker(session).refuses is None


def test_an_unchanged_list_is_not_written_again(session: Session) -> None:
    version = "select xmin::text from pgqueue_worker"
    see(session)
    lack(session, "a")
    before = session.one(version)
    lack(session, "a")
    assert session.one(version) == before


def test_the_first_fifty_are_stored(session: Session) -> None:
    see(session)
    lack(session, *[f"t{n:02}" for n in range(60)])
    assert worker(session).lacks == [f"t{n:02}" for n in range(50)]
    session.call("pgqueue_worker_lacks", id="host-1", lacks=[], refuses=[f"t{n:02}" for n in range(60)])
    assert worker(session).refuses == [f"t{n:02}" for n in range(50)]


def test_a_worker_without_a_row_gets_no_row(session: Session) -> None:
    see(session)
    lack(session, "a", of="another")
    assert worker(session).lacks is None


# pgqueue_worker_version: the version of the deploy that a worker runs


VERSION = "select version, xmin::text from pgqueue_worker where id = 'a'"


def test_the_version_is_written_once(session: Session) -> None:
    see(session, "a")
    assert session.rows(VERSION)[0][0] is None
    session.call("pgqueue_worker_version", id="a", version="2024.10.1")
    before = session.rows(VERSION)
    assert before[0][0] == "2024.10.1"
    session.call("pgqueue_worker_version", id="a", version="2024.10.1")
    assert session.rows(VERSION) == before
    see(session, "a")
    assert session.rows(VERSION)[0][0] == "2024.10.1"


# pgqueue_version_key: the order of the versions of deploys


IN_ORDER = [
    "0.9", "1", "1.0", "1.0.1", "2", "9", "10", "10-rc1", "10.1", "2024.9", "2024.9.1", "2024.10.1",
    "2024.10.1+a1", "2024.10.1+a10", "20241001", "20241001-9", "20241001-10", "a", "build 9", "build 10", "v1", "ä",
]  # fmt: skip


def sorted_by_sql(session: Session, versions: list[str]) -> list[str]:
    rows = session.rows(
        'select v from unnest(%(versions)s::text[]) as v order by pgqueue_version_key(v) collate "C", v collate "C"',
        {"versions": versions},
    )
    return [row[0] for row in rows]


def test_numbers_are_compared_as_numbers(session: Session) -> None:
    shuffled = IN_ORDER[:]
    random.Random(1).shuffle(shuffled)
    assert sorted_by_sql(session, shuffled) == IN_ORDER


def test_python_has_the_same_order(session: Session) -> None:
    dice = random.Random(2)
    letters = "0019.-+ vß~"
    versions = {"".join(dice.choices(letters, k=dice.randint(1, 12))) for _ in range(2000)} | set(IN_ORDER)
    rows = session.rows(
        "select v, pgqueue_version_key(v) from unnest(%(versions)s::text[]) as v", {"versions": sorted(versions)}
    )
    assert {row[0]: row[1] for row in rows} == {version: key(version) for version in versions}


def test_no_version_has_no_key(session: Session) -> None:
    assert session.value("pgqueue_version_key", version=None) is None


@pytest.mark.parametrize(
    ("value", "possible"),
    [
        ("1", True),
        ("v 1", True),
        ("x" * 100, True),
        ("x" * 101, False),
        ("", False),
        (1, False),
        (None, False),
        ("a\n", False),
    ],
)
def test_only_valid_versions_are_accepted(value: object, possible: bool) -> None:
    assert is_version(value) is possible


# pgqueue_session_worker: the worker name of consumers that give none


def test_the_name_has_the_start_of_the_session_because_pids_are_reused(connect: Connect) -> None:
    session = connect()
    begun = session.one("select extract(epoch from backend_start) from pg_stat_activity where pid = pg_backend_pid()")
    name = session.one("select pgqueue_session_worker()")
    assert name == f"session-{int(begun * 1_000_000):x}-{session.pid}"


def test_only_its_own_session_ends_messages_of_a_consumer_without_a_name(connect: Connect) -> None:
    session, other = connect(), connect()
    session.create()
    held = session.take()
    assert other.value("pgqueue_message_complete", id=held.id, attempt=held.attempt) is False
    assert held.worker == session.one("select pgqueue_session_worker()")
    assert session.value("pgqueue_message_complete", id=held.id, attempt=held.attempt) is True


# pgqueue_worker_order: people give orders to workers that live


def ordered(session: Session, worker: str = "host-1") -> tuple[Any, ...]:
    [row] = session.rows("select ordered, ordered_slots, ordered_by from pgqueue_worker where id = %s", [worker])
    return tuple(row)


def test_an_order_stands_in_the_row_until_the_next_one(session: Session) -> None:
    see(session)
    assert session.value("pgqueue_worker_order", id="host-1", order="pause", by="Ada") is True
    assert session.value("pgqueue_worker_order", id="host-1", order="slots", slots=7, by="Bob") is True
    see(session)
    assert ordered(session) == ("pause", 7, "Bob")
    session.value("pgqueue_worker_order", id="host-1", order="resume", by="Ada")
    assert ordered(session) == (None, 7, "Ada")


def test_a_worker_that_is_gone_or_takes_raw_messages_gets_no_order(session: Session) -> None:
    assert session.value("pgqueue_worker_order", id="host-1", order="stop") is False
    see(session, tasks=False)
    assert session.value("pgqueue_worker_order", id="host-1", order="stop") is False
    session.rows("update pgqueue_worker set tasks = true, seen_at = seen_at - interval '2 minutes'")
    assert session.value("pgqueue_worker_order", id="host-1", order="stop") is False
    assert ordered(session) == (None, None, None)


# Refused values


REFUSED: list[tuple[str, dict[str, Any], type[psycopg.Error]]] = [
    ("pgqueue_worker_seen", WORKER | {"id": None}, psycopg.errors.NotNullViolation),
    ("pgqueue_worker_version", {"version": "x" * 101}, psycopg.errors.CheckViolation),
    ("pgqueue_worker_version", {"version": "a\nb"}, psycopg.errors.CheckViolation),
    ("pgqueue_worker_order", {"order": "dance"}, psycopg.errors.InvalidParameterValue),
    ("pgqueue_worker_order", {"order": None}, psycopg.errors.InvalidParameterValue),
    ("pgqueue_worker_order", {"order": "slots"}, psycopg.errors.InvalidParameterValue),
    ("pgqueue_worker_order", {"order": "slots", "slots": 0}, psycopg.errors.InvalidParameterValue),
    ("pgqueue_worker_lacks", {"lacks": ["x" * 20_000]}, psycopg.errors.CheckViolation),
    ("pgqueue_worker_lacks", {"lacks": [], "refuses": ["x" * 20_000]}, psycopg.errors.CheckViolation),
]


@pytest.mark.parametrize(("function", "wrong", "error"), REFUSED)
def test_an_invalid_value_is_refused(
    session: Session, function: str, wrong: dict[str, Any], error: type[psycopg.Error]
) -> None:
    see(session)
    with pytest.raises(error):
        session.call(function, **{"id": "host-1", **wrong})
