"""The disk of the WAL."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

import psycopg

from tests.reliability.faults.fault import Skipped, fault

if TYPE_CHECKING:
    import random

    from tests.reliability.storm import Storm


@fault("WAL disk full", "database", weight=0.3, short=False, stops_everybody=True)
def fill(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """Nothing can be written until somebody makes room: PostgreSQL goes down, and comes back with all that it had."""
    node = storm.server.primary
    if node.wal is None:
        message = "only root may mount a small disk"
        raise Skipped(message)
    filler = node.wal / "filler"
    stat = os.statvfs(node.wal)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, stat.f_bavail * stat.f_frsize)
    deadline = time.monotonic() + 8
    with contextlib.suppress(psycopg.Error), storm.server.connect() as admin:
        while node.alive and time.monotonic() < deadline:
            admin.execute("insert into storm_pad select n, repeat('x', 1000) from generate_series(1, 2000) as n")
    time.sleep(0.5)
    filler.unlink()
    came_down = not node.alive
    storm.server.heal()
    with storm.server.when_there() as admin:
        admin.execute("truncate storm_pad")
    return {"PostgreSQL went down": came_down}
