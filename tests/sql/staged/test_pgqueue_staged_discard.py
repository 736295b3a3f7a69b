"""What runs have left behind goes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from tests.support.sessions import Session


def stage(session: Session, batch: int, days: int = 0) -> None:
    session.rows(
        "insert into pgqueue_staged (batch, token, staged_at, priority, queue, content) "
        "values (%s, gen_random_uuid(), now() - make_interval(days => %s), 0, 'default', '1')",
        [UUID(int=batch), days],
    )


def left(session: Session) -> list[int]:
    return [batch.int for batch in session.column("select batch from pgqueue_staged order by batch")]


def test_rows_of_a_failed_run_are_deleted_and_others_stay(session: Session) -> None:
    stage(session, 1)
    stage(session, 2)
    session.value("pgqueue_staged_discard", batch=UUID(int=1))
    assert left(session) == [2]


def test_rows_of_an_unfinished_run_are_deleted_after_a_week(session: Session) -> None:
    stage(session, 1, days=8)
    stage(session, 2, days=6)
    session.value("pgqueue_staged_discard")
    assert left(session) == [2]


def test_the_ledger_forgets_old_batches_and_never_a_stream(session: Session) -> None:
    for run, epoch, days in [("old", -1, 366), ("young", -1, 364), ("stream", 0, 3660)]:
        session.rows(
            "insert into pgqueue_ledger (run_id, epoch, rows, written_at) "
            "values (%s, %s, 1, now() - make_interval(days => %s))",
            [run, epoch, days],
        )
    session.value("pgqueue_staged_discard")
    assert session.column("select run_id from pgqueue_ledger order by 1") == ["stream", "young"]
