"""The history: finished attempts, in partitions by day."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.sessions import end_one, partition_of

if TYPE_CHECKING:
    from tests.support.sessions import Session

DAY_MS = 86_400_000


def today(session: Session, days: int = 0) -> str:
    """The name of the partition of a day, from today on."""
    name: str = session.one(
        "select 'pgqueue_attempt_' || to_char((clock_timestamp() at time zone 'UTC')::date + %s, 'YYYYMMDD')", [days]
    )
    return name


def test_an_attempt_is_in_the_partition_of_the_day_of_its_end(session: Session) -> None:
    assert partition_of(session, end_one(session)) == today(session)
    tomorrow = session.one("select pgqueue_to_epoch(now()) + %s", [DAY_MS])
    assert partition_of(session, end_one(session, tomorrow)) == today(session, 1)


def test_an_attempt_without_a_partition_goes_to_the_default_one(session: Session) -> None:
    for days in (-3650, 3650):
        at = session.one("select pgqueue_to_epoch(now()) + %s", [days * DAY_MS])
        assert partition_of(session, end_one(session, at)) == "pgqueue_attempt_default"


def test_ids_grow_over_all_partitions(session: Session) -> None:
    now = session.one("select pgqueue_to_epoch(now())")
    ended = [end_one(session, now + days * DAY_MS) for days in (1, 0, 400, 0)]
    assert [end.message_id for end in session.history()] == ended


def test_a_status_that_is_not_in_the_glossary_is_refused(session: Session) -> None:
    end_one(session)
    with pytest.raises(psycopg.errors.CheckViolation, match="pgqueue_attempt_status_known"):
        session.rows("update pgqueue_attempt set status = 'done'")


def test_all_partitions_have_the_constraints_of_the_history(session: Session) -> None:
    """Partitions are made with the constraints of the table."""
    constraints = session.rows("""
        select c.conrelid, array_agg(pg_get_constraintdef(c.oid) order by pg_get_constraintdef(c.oid)) as definitions
        from pg_constraint c
        where c.contype = 'c' and (c.conrelid = 'pgqueue_attempt'::regclass or c.conrelid in (
            select inhrelid from pg_inherits where inhparent = 'pgqueue_attempt'::regclass))
        group by c.conrelid
    """)
    assert len(constraints) >= 10
    assert len({tuple(row.definitions) for row in constraints}) == 1
