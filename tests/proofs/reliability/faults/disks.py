"""The disk of the WAL."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import TYPE_CHECKING, Any

import psycopg

from tests.proofs.reliability.faults.fault import Skipped, fault

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.proofs.reliability.storm import Storm


def take_what_is_free(file: int, folder: Path) -> None:
    """PostgreSQL writes at the same time: what was free when one asked may be taken a moment later."""
    for attempt in range(50):
        stat = os.statvfs(folder)
        try:
            os.posix_fallocate(file, 0, max(1, stat.f_bavail - attempt) * stat.f_frsize)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        else:
            return


@fault("WAL disk full", "database", weight=0.3, short=False, stops_everybody=True)
def fill(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """Nothing can be written until somebody makes room: PostgreSQL goes down, and comes back with all that it had."""
    node = storm.server.primary
    if node.wal is None:
        message = "only root may mount a small disk"
        raise Skipped(message)
    filler = node.wal / "filler"
    with filler.open("wb") as file:
        take_what_is_free(file.fileno(), node.wal)
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
