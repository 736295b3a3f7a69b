"""The clock of a worker's host, and clocks that are put forward and back twice a year."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import psycopg

from django_pgqueue.tasks.schedule import Rule
from django_pgqueue.values.times import not_before
from tests.proofs.reliability import zones
from tests.proofs.reliability.faults.fault import Skipped, fault
from tests.proofs.reliability.workers import HOST_ZONE
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


@fault("clock jump", "processes")
def jump(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """A worker's wall clock jumps and comes back; its monotonic clock does not."""
    if not storm.workers.has_faketime:
        message = "libfaketime is not installed"
        raise Skipped(message)
    offset = chooser.choice(("-3600s", "+3600s", "-90000s", "+31536000s"))
    storm.workers.clock.write_text(f"{offset}\n")
    time.sleep(1)
    storm.workers.clock.write_text("+0\n")
    return {"offset": offset}


CAUGHT_UP_SECONDS = 120.0
"""PostgreSQL may be away meanwhile."""


@fault("DST change", "processes")
def change(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """Clocks go forward or back in a zone that two schedules are in, and on the host of a worker.

    All workers fire what the schedules have missed before the change, go over it, and go on; then somebody puts the
    schedules back before it, and nothing of all that may happen again.  The long storm also waits for changes to come.
    """
    season = chooser.choice((zones.SPRING, zones.AUTUMN))
    live = not storm.short and chooser.random() < 0.5
    change_at = 60 * (int(time.time() / 60) + live)
    host = change_host(storm, season)
    schedules = make_schedules(storm, season, change_at)
    wait_until_after(storm, schedules, change_at)
    with storm.server.when_there() as admin, admin.transaction():
        for name, first in schedules.items():
            admin.execute("update pgqueue_schedule set next_at = %s where name = %s", [first, name])
    wait_until_after(storm, schedules, change_at)
    storm.workers.clock.write_text("+0\n")
    storm.clock_changes.append((season, change_at))
    return {"season": season, "live": live, "host": host}


def change_host(storm: Storm, season: str) -> bool:
    """The clock of a host is a second before that of its zone changes."""
    now = dt.datetime.now(dt.UTC)
    changed = zones.last_change(HOST_ZONE, season, now) if storm.workers.has_faketime and HOST_ZONE else None
    if changed is not None:
        storm.workers.clock.write_text(f"-{(now - changed).total_seconds() + 1:.0f}s\n")
    return changed is not None


def make_schedules(storm: Storm, season: str, change_at: int) -> dict[str, int]:
    """One that is due each minute, one at a time of day that does not come or comes twice, by their first times."""
    zone = zones.named(season, change_at)
    zones.write(storm.workers.zones, zone, season, change_at)
    once = dt.datetime.fromtimestamp(change_at + 60, dt.UTC)  # the minute after the change, by the clock of the winter
    rules = {f"{zone} each minute": "* * * * *", f"{zone} once": f"{once.minute} {once.hour} * * *"}
    before = dt.datetime.fromtimestamp(change_at - zones.HOUR_SECONDS - 1, dt.UTC)
    firsts = {name: not_before(Rule(cron=cron, timezone=zone).first_after(before)) for name, cron in rules.items()}
    with storm.server.when_there() as admin:
        for name, cron in rules.items():
            admin.execute(
                "insert into pgqueue_schedule (name, next_at, cron, timezone, catch_up, task, max_attempts) "
                "values (%s, %s, %s, %s, 'all', 'tests.proofs.reliability.tasks.tick', 30) on conflict do nothing",
                [name, firsts[name], cron, zone],
            )
    return firsts


def wait_until_after(storm: Storm, schedules: dict[str, int], change_at: int) -> None:
    """Workers have dealt with all that was due, and with the change."""
    query = "select bool_and(next_at > greatest(pgqueue_now(), %s)) from pgqueue_schedule where name = any (%s)"

    def are_after() -> bool:
        time.sleep(0.1)
        with contextlib.suppress(psycopg.Error), storm.server.connect() as admin:
            return admin.execute(query, [change_at * 1000, list(schedules)]).fetchone() == (True,)
        return False

    seconds = max(0.0, change_at - time.time()) + CAUGHT_UP_SECONDS
    wait_until(are_after, "the schedules go over the change of their clocks", seconds)
