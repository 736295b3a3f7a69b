"""What a login may write: every row of the queue can be read back, and claimed, by everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from django_pgqueue import functions
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.functions import sql_files
from django_pgqueue.testing import clock
from tests.promises.security.conftest import ROLES
from tests.support.sessions import NOON

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from tests.promises.security.conftest import Guarded
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = pytest.mark.django_db

SOON = "pgqueue_clock() between clock_timestamp() - interval '1 minute' and clock_timestamp()"


@pytest.mark.parametrize("who", [*ROLES, "owner"])
def test_no_session_can_set_the_clock_of_a_queue_in_use(guarded: Guarded, who: str) -> None:
    with guarded.session(who, autocommit=False) as session:
        session.set_clock(300_000_000_000_000)
        assert session.one(f"select {SOON}")
        assert session.one("select pgqueue_now() - pgqueue_to_epoch(clock_timestamp()) between -60000 and 0")


@pytest.mark.parametrize("who", [*ROLES, "nobody"])
def test_only_the_owner_makes_the_clock_movable(guarded: Guarded, who: str) -> None:
    with guarded.session(who) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.rows(sql_files.current("movable_clock"))


def test_a_test_database_gets_a_movable_clock_by_itself(fixed_clock: BaseDatabaseWrapper) -> None:
    with clock() as now:
        assert abs(functions.now(fixed_clock) - now.at).total_seconds() < 1


def test_another_database_does_not(fixed_clock: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fixed_clock.settings_dict, "NAME", "shop")
    with pytest.raises(
        PgQueueError, match=r"'shop' cannot be moved: its name is not the name of a test database\. If it"
    ):
        clock().__enter__()


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "given",
    [{"queue": LONG}, {"queue": "x" * 256}, {"queue": ""}, {"task": LONG}, {"channel": "é" * 128}],
)
def test_a_producer_cannot_enqueue_under_a_name_that_others_cannot_use(guarded: Guarded, given: dict[str, Any]) -> None:
    with guarded.session("producer") as session:
        for call in (
            lambda: session.create(**given),
            lambda: session.call("pgqueue_message_create_after", after_ids=[1], content="x", **given),
            lambda: session.call("pgqueue_message_create_unique", unique_key="k", content="x", **given),
            lambda: session.create_batch(1, **given),
        ):
            with pytest.raises(psycopg.errors.CheckViolation, match="pgqueue_message_names_short"):
                call()


@pytest.mark.parametrize("max_attempts", [-1, 2_000_000_001, 2**31 - 1])
def test_a_producer_cannot_ask_for_more_attempts_than_can_be_counted(guarded: Guarded, max_attempts: int) -> None:
    with (
        guarded.session("producer") as session,
        pytest.raises(psycopg.errors.CheckViolation, match="pgqueue_message_counts_range"),
    ):
        session.create(max_attempts=max_attempts)


@pytest.mark.parametrize(
    "change",
    [
        "attempt = 2147483647",
        "attempt = -1",
        "max_attempts = 2147483647",
        "created_at = '11476-01-01'",
        "created_at = 'infinity'",
        "created_at = '0044-03-15 BC'",
        "locked_at = '-infinity', worker = 'w', unlock_at = 1",
        "cancel_requested_at = '10000-01-01'",
        "task = repeat('x', 10000000)",
        "worker = repeat('x', 256), unlock_at = 1, locked_at = now()",
    ],
)
def test_a_consumer_cannot_write_what_a_worker_cannot_read(session: Session, change: str) -> None:
    session.create()
    with pytest.raises(psycopg.errors.CheckViolation):
        session.rows(f"update pgqueue_message set {change}")


@pytest.mark.parametrize("channel", [None, "acme"])
def test_the_last_attempt_that_can_be_counted_takes_no_other_message_along(
    session: Session, channel: str | None
) -> None:
    counted, innocent = session.create("much", channel=channel, max_attempts=2_000_000_000), session.create("innocent")
    session.rows("update pgqueue_message set attempt = 2000000000 where id = %s", [counted])
    taken = {message.id: message for message in session.dequeue(10)}
    assert {counted, innocent} == set(taken)
    assert taken[counted].attempt == 2_000_000_000
    token = {"id": counted, "attempt": 2_000_000_000, "worker": taken[counted].worker}
    assert session.value("pgqueue_message_defer", **token, dequeue_at=0) == "deferred"
    assert session.message(counted).max_attempts == 2_000_000_000
    assert session.take().id == counted
    assert session.ids("pgqueue_message_release", ids=[counted], attempts=[2_000_000_000], worker=token["worker"])


@pytest.mark.parametrize("lock_ms", [2**63 - 1, -(2**63), 10**12 + 1])
def test_a_lock_with_an_unreachable_end_is_refused(session: Session, lock_ms: int) -> None:
    session.create()
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"p_lock_ms is {lock_ms}"):
        session.take(lock_ms=lock_ms)
    session.rollback()
    message_id = session.create()
    held = session.take()
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"p_lock_ms is {lock_ms}"):
        session.value("pgqueue_message_heartbeat", id=message_id, attempt=1, worker=held.worker, lock_ms=lock_ms)


def test_forged_ends_stop_no_claim(session: Session) -> None:
    session.create(channel="acme")
    for running in ("1000000000", "-1000000000"):
        session.rows(
            "insert into pgqueue_channel (name, running) values ('acme', %s) "
            "on conflict (name) do update set running = excluded.running",
            [running],
        )
        session.create(channel="acme")
        held = session.take()
        assert session.value("pgqueue_message_complete", id=held.id, attempt=1, worker=held.worker)
        session.dequeue(0)
    with pytest.raises(psycopg.errors.CheckViolation, match="ended_range"):
        session.rows("insert into pgqueue_arrival (channel, queue, raw, ended) values ('acme', 'x', true, 2147483647)")


@pytest.mark.parametrize(
    "statement",
    [
        "select pgqueue_queue_pause(repeat('x', 256))",
        "select pgqueue_queue_pause(E'a\\n2026-01-01 ERROR all is lost')",
        "select pgqueue_channel_set(repeat('x', 256), 1)",
        "select pgqueue_exchange_declare(E'\\x1b[31m')",
        "select pgqueue_schedule_declare(repeat('x', 256), 'a.b', 0, p_interval_ms => 1000)",
        "select pgqueue_schedule_declare(E'a\\nb', 'a.b', 0, p_interval_ms => 1000)",
        "select pgqueue_schedule_declare('a', repeat('x', 256), 0, p_interval_ms => 1000)",
        "select pgqueue_worker_seen(repeat('x', 56), null, '{}', 'h', 1, 1)",
        "select pgqueue_worker_seen('a', null, '{}', repeat('x', 256), 1, 1)",
        "select pgqueue_worker_seen('a', array_fill('x'::text, array[1001]), '{}', 'h', 1, 1)",
        "insert into pgqueue_ledger (run_id, epoch, rows) values (repeat('x', 256), 1, 1)",
    ],
)
def test_names_are_short_and_in_one_line_wherever_they_are_set(session: Session, statement: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        session.rows(statement)


def test_the_class_of_an_error_is_cut_and_its_end_is_recorded(session: Session) -> None:
    session.create()
    held = session.take()
    token = {"id": held.id, "attempt": 1, "worker": held.worker}
    assert session.value("pgqueue_message_fail", **token, error={"class": "🍵" * 1000, "message": "no"}) is True
    assert session.history(held.id)[0].error_class == "🍵" * 255


def test_an_attempt_with_an_unreadable_time_is_refused(connect: Connect) -> None:
    session = connect()
    session.set_clock(NOON)
    session.create()
    held = session.take()
    with pytest.raises(psycopg.errors.CheckViolation, match="times_of_calendar"):
        session.rows("select pgqueue_message_fail(%s, 1, %s, p_finished_at => 'infinity')", [held.id, held.worker])
