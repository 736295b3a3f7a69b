"""The partition of one day of the history."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON, end_one, partition_of, token

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

DAY = dt.date(2023, 11, 14)  # that of NOON, in UTC
NAME = "pgqueue_attempt_20231114"


def test_a_partition_is_created_once(session: Session) -> None:
    assert session.value("pgqueue_attempt_partition", day=DAY) is True
    assert session.value("pgqueue_attempt_partition", day=DAY) is False
    bounds = session.one("select pg_get_expr(relpartbound, oid) from pg_class where relname = %s", [NAME])
    assert bounds == "FOR VALUES FROM ('2023-11-14 00:00:00+00') TO ('2023-11-15 00:00:00+00')"


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
def test_days_are_those_of_utc_wherever_the_session_is(session: Session, zone: str) -> None:
    session.rows("select set_config('timezone', %s, false)", [zone])
    session.value("pgqueue_attempt_partition", day=DAY)
    last_ms_before = int(dt.datetime(2023, 11, 14, tzinfo=dt.UTC).timestamp()) * 1000 - 1
    ends = [end_one(session, last_ms_before + ms) for ms in (0, 1, 86_400_000, 86_400_001)]
    outside, inside = "pgqueue_attempt_default", NAME
    assert [partition_of(session, end) for end in ends] == [outside, inside, inside, outside]


def test_rows_of_the_default_partition_move_into_the_new_one(session: Session) -> None:
    stray, other_day = end_one(session, NOON), end_one(session, NOON + 86_400_000)
    before = session.history()
    session.value("pgqueue_attempt_partition", day=DAY)
    assert partition_of(session, stray) == NAME
    assert partition_of(session, other_day) == "pgqueue_attempt_default"
    assert session.history() == before


def test_a_partition_has_the_indexes_of_the_history(session: Session) -> None:
    session.value("pgqueue_attempt_partition", day=DAY)
    made, kept = (
        session.column(
            """
            select replace(pg_get_indexdef(indexrelid), indrelid::regclass::text, 'the_table')
            from pg_index where indrelid = %s::regclass
            """,
            [name],
        )
        for name in (NAME, "pgqueue_attempt_default")
    )
    assert len(made) == len(kept) == 4
    parents = session.column(
        "select count(*) from pg_inherits i join pg_index x on x.indexrelid = i.inhrelid where indrelid = %s::regclass",
        [NAME],
    )
    assert parents == [4], "every index is attached to that of the history"


def test_creating_a_partition_does_not_block_attempts_of_other_days(connect: Connect) -> None:
    maker, worker = connect(autocommit=False), connect()
    worker.create()
    worker.rows("set timezone = 'UTC'")
    maker.value("pgqueue_attempt_partition", day=DAY)
    worker.rows("set lock_timeout = '1s'")

    assert worker.value("pgqueue_message_complete", **token(worker.take())) is True
    today = worker.one("select current_date")
    tomorrow = today + dt.timedelta(days=1)
    read = worker.rows(f"select 1 from pgqueue_attempt where finished_at >= '{today}' and finished_at < '{tomorrow}'")

    assert len(read) == 1
    maker.rollback()
