"""Time zones of our own, whose clocks change when a storm wants them to: files as the system's zoneinfo has them."""

from __future__ import annotations

import datetime as dt
import struct
import zoneinfo
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HOUR_SECONDS, HALF_A_YEAR_SECONDS = 3600, 15_724_800
SPRING, AUTUMN = "spring", "autumn"


def named(season: str, change_at: int) -> str:
    return f"Storm/{season}-{change_at}"


def write(folder: Path, name: str, season: str, change_at: int) -> None:
    """A zone whose clocks go forward (in spring) or back (in autumn) by an hour at that time (epoch seconds)."""
    winter, summer = ttinfo(0, is_summer=False), ttinfo(HOUR_SECONDS, is_summer=True)
    before, after = (winter, summer) if season == SPRING else (summer, winter)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # Version 2 (RFC 8536): an empty block for those who know no more than 32 bits, and then the one that counts.
    path.write_bytes(
        header(times=0, types=1)
        + winter
        + NAMES
        + header(times=2, types=2)
        + struct.pack(">2q2B", change_at - HALF_A_YEAR_SECONDS, change_at, 0, 1)  # the other change, and this one
        + before
        + after
        + NAMES
        + b"\n\n"
    )


NAMES = b"WIN\0SUM\0"


def header(*, times: int, types: int) -> bytes:
    return b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, times, types, len(NAMES))


def ttinfo(offset_seconds: int, *, is_summer: bool) -> bytes:
    return struct.pack(">lBB", offset_seconds, is_summer, 4 if is_summer else 0)


def search_path(folder: Path) -> str:
    """Of who is to know the zones of this folder beside those of the system: ``PYTHONTZPATH``."""
    return ":".join([str(folder), *zoneinfo.TZPATH])


def last_change(name: str, season: str, before: dt.datetime) -> dt.datetime | None:
    """When a zone's clocks last went forward, or back."""
    zone = zoneinfo.ZoneInfo(name)
    day, minute = dt.timedelta(days=1), dt.timedelta(minutes=1)
    for days in range(400):
        end = before - days * day
        turned = offset(zone, end) - offset(zone, end - day)
        if turned and (turned > dt.timedelta(0)) == (season == SPRING):
            end = end.replace(second=0, microsecond=0)
            return next(
                end - n * minute for n in range(1441) if offset(zone, end - (n + 1) * minute) != offset(zone, end)
            )
    return None


def offset(zone: dt.tzinfo, moment: dt.datetime) -> dt.timedelta:
    return moment.astimezone(zone).utcoffset() or dt.timedelta(0)
