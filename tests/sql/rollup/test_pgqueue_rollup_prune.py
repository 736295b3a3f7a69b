"""Old figures are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import NOON, end_one

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect

pytestmark = pytest.mark.once

HOUR_MS = 3_600_000


def test_five_minutes_are_kept_for_hours_and_hours_for_weeks(connect: Connect) -> None:
    session = connect()
    end_one(session, NOON)
    while session.value("pgqueue_rollup_add"):
        pass
    session.set_clock(NOON + 5 * HOUR_MS)
    assert session.value("pgqueue_rollup_prune") == 0
    session.set_clock(NOON + 7 * HOUR_MS)
    assert session.value("pgqueue_rollup_prune") == 1
    session.set_clock(NOON + 30 * 24 * HOUR_MS)
    assert session.value("pgqueue_rollup_prune") == 0
    assert session.value("pgqueue_rollup_prune", days=29) == 1
