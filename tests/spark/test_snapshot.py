"""All tasks of a read see one moment, whenever they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_pgqueue.spark import snapshot
from django_pgqueue.spark.errors import HistoryReplaced
from django_pgqueue.spark.snapshot import Snapshot, horizon
from tests.spark.conftest import finish

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def seen(session: Session, moment: Snapshot) -> list[int]:
    condition = moment.condition().as_string(None)
    return session.column(f"select message_id from pgqueue_attempt where {condition} order by 1")


def test_a_transaction_open_at_the_snapshot_stays_invisible(connect: Connect) -> None:
    reader, early, late = connect(), connect(autocommit=False), connect(autocommit=False)
    before = finish(reader)
    finish(early)
    finish(late)
    after_both_began = finish(reader)
    early.rollback()
    taken = Snapshot.taken(reader.connection)
    late.commit()
    finish(reader)
    assert taken.running
    assert seen(reader, taken) == sorted(before + after_both_began)


def test_the_horizon_is_the_oldest_transaction_that_has_written_and_runs(connect: Connect) -> None:
    reader, writer, other = connect(), connect(autocommit=False), connect(autocommit=False)
    other.rows("select count(*) from pgqueue_attempt")  # it has written nothing, so it holds nothing back
    first = horizon(reader.connection)
    finish(writer)
    number = writer.one("select pg_current_xact_id()::text::bigint")
    finish(reader)
    assert horizon(reader.connection) == number >= first
    writer.commit()
    assert horizon(reader.connection) > number


def test_a_row_has_the_number_of_its_transaction(connect: Connect) -> None:
    writer = connect(autocommit=False)
    finish(writer, 2)
    number = writer.one("select pg_current_xact_id()::text::bigint")
    assert writer.column("select distinct transaction_id from pgqueue_attempt") == [number]


def test_a_row_that_is_moved_to_its_partition_keeps_its_transaction(connect: Connect) -> None:
    session = connect(autocommit=False)
    session.set_clock(4_000_000_000_000)
    finish(session)
    before = session.rows("select tableoid, transaction_id from pgqueue_attempt")
    session.commit()
    session.rows("select pgqueue_attempt_partition('2096-10-02')")
    after = session.rows("select tableoid, transaction_id from pgqueue_attempt")
    session.rollback()
    assert before[0].transaction_id == after[0].transaction_id
    assert before[0].tableoid != after[0].tableoid


def test_a_history_of_another_server_is_noticed(connect: Connect) -> None:
    session = connect()
    finish(session, 2)
    session.rows("update pgqueue_attempt set transaction_id = 10 ^ 15")
    with pytest.raises(HistoryReplaced, match="restored from a dump") as caught:
        Snapshot.taken(session.connection)
    statement = str(caught.value).partition("these rows as old, once:")[2]
    session.rows(statement)
    assert len(seen(session, Snapshot.taken(session.connection))) == 2


def test_planning_a_read_does_not_read_the_history(connect: Connect) -> None:
    """What nobody could have written yet is looked for in the block range index, with or without statistics."""
    session = connect()
    finish(session, 2000)
    with session.connection.transaction():
        session.rows(snapshot.BY_INDEX)
        plan = "\n".join(session.column(f"explain {snapshot.LATER}", [10**15]))
    assert plan.count("Bitmap Index Scan on pgqueue_attempt") >= 2
    assert "Seq Scan" not in plan
