"""Row and table locks in everybody's way."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import psycopg

from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


HELD = "select id from pgqueue_message where worker is not null and queue <> 'bystanders' order by id desc limit 30"
TABLES = ("pgqueue_message", "pgqueue_attempt", "pgqueue_worker", "pgqueue_channel", "pgqueue_arrival")


@fault("bulk edit in the opposite order", "database", weight=2)
def edit_backwards(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """Rows that are held by workers, the last one first: who ends them in the right order gets into a deadlock."""
    deadlocks = edits = 0
    with storm.server.when_there() as admin:
        for _ in range(15):
            ids = [message_id for [message_id] in admin.execute(HELD)]
            try:
                with admin.transaction():
                    for message_id in ids:
                        admin.execute("update pgqueue_message set headers = headers where id = %s", [message_id])
                        edits += 1
                        time.sleep(0.002)
            except psycopg.errors.DeadlockDetected:
                deadlocks += 1
            time.sleep(0.02)
    return {"edits": edits, "deadlocks that were ours": deadlocks}


@fault("ACCESS EXCLUSIVE lock", "database", stops_everybody=True)
def lock_out(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    table = chooser.choice(TABLES)
    with storm.server.when_there() as admin, admin.transaction():
        admin.execute(f"lock table {table} in access exclusive mode".encode())
        time.sleep(chooser.choice((0.2, 1.0, 2.5)))
    return {"table": table}


@fault("turn that is kept", "database")
def keep_the_turn(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """Who has more than it can take waits for it, and does without in the end."""
    seconds = chooser.choice((0.3, 3.0))
    with storm.server.when_there() as admin, admin.transaction():
        admin.execute("select pgqueue_message_await_turn()")
        time.sleep(seconds)
    return {"seconds": seconds}


@fault("VACUUM FULL and REINDEX", "database", stops_everybody=True)
def rewrite(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    with storm.server.when_there() as admin, contextlib.suppress(psycopg.errors.DeadlockDetected):
        admin.execute("vacuum full pgqueue_message")
        admin.execute("reindex table pgqueue_message")
        admin.execute("analyze pgqueue_message")
    return {}
