"""Whoever may log in may hold any advisory lock of the database: nothing of importance waits for it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.promises.security.conftest import ROLES_FILE, _run
from tests.support.sessions import token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.promises.security.conftest import Guarded
    from tests.support.sessions import Session

pytestmark = pytest.mark.django_db

NUMBERS = """
select hashtextextended('pgqueue_message'::regclass::oid || ' ' || what, 0)
from unnest(array['channel acme', 'unique keys of a.b', 'turn ', 'turn {mail}']) as what
"""
EMPTIED = ("pgqueue_message", "pgqueue_attempt", "pgqueue_lane", "pgqueue_arrival", "pgqueue_channel")


@contextmanager
def held(guarded: Guarded) -> Iterator[Session]:
    """Somebody without any role holds all of our locks, and never gives them back."""
    with guarded.session() as owner:
        numbers = owner.column(NUMBERS)
        with guarded.session("nobody") as nobody:
            for number in numbers:
                nobody.rows("select pg_advisory_lock(%s)", [number])
            assert len(owner.rows("select 1 from pg_locks where locktype = 'advisory' and pid = %s", [nobody.pid])) == 4
            yield owner
        for table in EMPTIED:
            owner.rows(f"delete from {table}")


def test_a_foreign_advisory_lock_does_not_block_a_new_channel(guarded: Guarded) -> None:
    with held(guarded), guarded.session("consumer") as consumer:
        consumer.create("tea", channel="acme")
        taken = consumer.take()
        assert (taken.content, taken.channel) == ("tea", "acme")
        assert consumer.value("pgqueue_message_complete", **token(taken)) is True


def test_a_foreign_advisory_lock_stops_no_bulk_with_unique_keys(guarded: Guarded) -> None:
    with held(guarded), guarded.session("producer") as producer:
        producer.rows("set lock_timeout = '50ms'")  # instead of ten seconds
        ids = producer.create_batch(3, task="a.b", unique_key="k")
        assert len(set(ids)) == 1
        producer.call("pgqueue_message_lock_keys", task="a.b", alone=True)
        assert producer.one("show lock_timeout") == "50ms"


@pytest.mark.slow
def test_a_foreign_advisory_lock_stops_no_limit_of_a_channel(guarded: Guarded) -> None:
    with held(guarded), guarded.session("admin") as admin:
        admin.call("pgqueue_channel_set", name="acme", max_concurrency=3)
        assert admin.one("select max_concurrency from pgqueue_channel where name = 'acme'") == 3
        admin.call("pgqueue_channel_repair", name="acme")
        assert admin.value("pgqueue_channel_release", name="acme") is True


def test_a_foreign_advisory_lock_delays_a_turn_by_its_wait_at_most(guarded: Guarded) -> None:
    with held(guarded), guarded.session("consumer") as consumer:
        for queues in (None, ["mail"]):
            assert consumer.value("pgqueue_message_await_turn", queues=queues, wait_ms=1) is None


@pytest.mark.parametrize("who", ["nobody", "producer", "reader", "consumer"])
def test_a_role_that_cannot_change_the_history_cannot_block_new_partitions(guarded: Guarded, who: str) -> None:
    with guarded.session() as owner, guarded.session(who, autocommit=False) as stranger:
        for old in ("hashtext('pgqueue_attempt_maintain')", "1"):
            stranger.rows(f"select pg_advisory_xact_lock({old})")
        day = owner.one("select to_char(now() at time zone 'UTC' + interval '3 days', 'YYYYMMDD')")
        owner.rows(f"drop table if exists pgqueue_attempt_{day}")
        with guarded.session("consumer") as consumer:
            assert consumer.value("pgqueue_attempt_maintain") == 1
        stranger.rollback()
        _run(guarded.conninfo, ROLES_FILE)  # for the new table


WORKER: dict[str, Any] = {"queues": None, "exclude_queues": [], "hostname": "h", "pid": 1, "slots": 1}


def test_nobody_makes_a_living_worker_look_dead(guarded: Guarded) -> None:
    """Who has no rights neither releases its advisory lock nor writes its row; and a consumer sees what it holds."""
    with guarded.session("consumer") as consumer, guarded.session("consumer") as other:
        assert consumer.value("pgqueue_worker_hold", id="w") is True
        consumer.call("pgqueue_worker_seen", id="w", held=True, **WORKER)
        number = consumer.value("pgqueue_worker_number", id="w")
        for who in ("nobody", "producer", "reader"):
            with guarded.session(who) as stranger:
                assert stranger.one("select pg_advisory_unlock_shared(%s)", [number]) is False
                for forgery in (
                    "update pgqueue_worker set seen_at = now() - interval '1 day'",
                    "insert into pgqueue_worker (id, pid, slots, hostname) values ('x', 1, 1, 'h')",
                    "select pgqueue_worker_seen('w', null, '{}', 'h', 1, 1, p_held => true)",
                    "select pgqueue_worker_expire(0)",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        stranger.rows(forgery)
        assert other.value("pgqueue_worker_expire", silent_ms=0) == 0
        assert other.column("select id from pgqueue_worker") == ["w"]
        consumer.rows("select pg_advisory_unlock_all()")
        assert other.value("pgqueue_worker_expire", silent_ms=0) == 0, "it holds nothing"
        assert other.column("select id from pgqueue_worker") == []


def test_a_login_that_holds_the_lock_of_a_dead_worker_delays_until_the_lease_ends(guarded: Guarded) -> None:
    with guarded.session("consumer") as consumer, guarded.session("producer") as producer:
        message_id = producer.create("tea")
        consumer.call("pgqueue_worker_seen", id="dead", held=True, tasks=False, **WORKER)
        assert consumer.take(worker="dead").id == message_id
        number = consumer.value("pgqueue_worker_number", id="dead")
        with guarded.session("nobody") as stranger:
            stranger.rows("select pg_advisory_lock(%s)", [number])
            assert consumer.value("pgqueue_worker_expire", silent_ms=0) == 0
            consumer.rows("update pgqueue_message set unlock_at = pgqueue_now()")
            assert consumer.take(worker="other").attempt == 2
    with guarded.session() as owner:
        for table in (*EMPTIED, "pgqueue_worker"):
            owner.rows(f"delete from {table}")


@pytest.mark.slow
def test_creating_a_channel_in_a_long_transaction_blocks_no_claim(guarded: Guarded) -> None:
    with guarded.session("admin", autocommit=False) as admin, guarded.session("consumer") as consumer:
        admin.call("pgqueue_channel_set", name="acme", max_concurrency=3)
        consumer.create("tea", channel="acme")
        consumer.create("milk", channel="other")
        consumer.create("bread")
        # Neither for its own sake, nor for the others that are new.
        taken = {message.content for _ in range(200) for message in consumer.dequeue(10)}
        assert taken == {"milk", "bread"}
        admin.commit()
        assert [message.content for message in consumer.dequeue(10)] == ["tea"]
    with guarded.session() as owner:
        for table in EMPTIED:
            owner.rows(f"delete from {table}")
