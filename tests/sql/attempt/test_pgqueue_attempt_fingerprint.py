"""What the history of a day comes to."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON, end_one

if TYPE_CHECKING:
    from tests.support.sessions import Session

DAY = dt.date(2023, 11, 14)  # that of NOON, in UTC


def test_a_day_without_attempts_has_a_fingerprint(session: Session) -> None:
    assert session.value("pgqueue_attempt_fingerprint", day=DAY) == "0:0:0"


def test_it_counts_the_attempts_of_its_day_only(session: Session) -> None:
    for at_ms in (NOON, NOON + 1, NOON + 86_400_000):
        end_one(session, at_ms)
    rows, ids, _ = session.value("pgqueue_attempt_fingerprint", day=DAY).split(":")
    assert [int(rows), int(ids)] == [2, sum(attempt.id for attempt in session.history()[:2])]


@pytest.mark.parametrize(
    "change",
    ["queue = 'mail'", "result = '1'", "content = null", "finished_at = finished_at + '1 us'", "final = false"],
)
def test_a_different_row_gives_a_different_fingerprint(session: Session, change: str) -> None:
    end_one(session, NOON)
    before = session.value("pgqueue_attempt_fingerprint", day=DAY)
    session.rows(f"update pgqueue_attempt set {change}")
    assert session.value("pgqueue_attempt_fingerprint", day=DAY) != before
