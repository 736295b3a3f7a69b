"""Zones of our own are such as Python and PostgreSQL know them."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import TYPE_CHECKING

import pytest

from tests.proofs.reliability import zones

if TYPE_CHECKING:
    from pathlib import Path

AT = dt.datetime(2026, 11, 20, 20, 43, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


@pytest.mark.parametrize(("season", "before", "after"), [(zones.SPRING, 0, 1), (zones.AUTUMN, 1, 0)])
def test_the_clocks_of_a_zone_change_at_the_given_time(tmp_path: Path, season: str, before: int, after: int) -> None:
    zones.write(tmp_path, "Storm/one", season, int(AT.timestamp()))
    with (tmp_path / "Storm/one").open("rb") as file:
        zone = zoneinfo.ZoneInfo.from_file(file)
    hours = [zones.offset(zone, moment) // dt.timedelta(hours=1) for moment in (AT - 3600 * SECOND, AT - SECOND, AT)]
    assert hours == [before, before, after]


def test_the_last_change_of_a_zone_is_found() -> None:
    found = [zones.last_change("Europe/Berlin", season, AT) for season in (zones.SPRING, zones.AUTUMN)]
    assert found == [dt.datetime(2026, month, day, 1, tzinfo=dt.UTC) for month, day in ((3, 29), (10, 25))]
