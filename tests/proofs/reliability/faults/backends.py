"""The server's processes: sessions that are ended, statements that are cancelled, a process that is killed."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm

SESSIONS = "select pid from pg_stat_activity where usename = 'storm' and backend_type = 'client backend' order by pid"
A_SECOND = 20


def each(storm: Storm, chooser: random.Random, function: str) -> dict[str, Any]:
    count, until = 0, time.monotonic() + 2
    with storm.server.when_there() as admin:
        while time.monotonic() < until:
            pids = [pid for [pid] in admin.execute(SESSIONS)]
            if pids:
                admin.execute(f"select {function}(%s)".encode(), [chooser.choice(pids)])
                count += 1
            time.sleep(1 / A_SECOND)
    return {"sessions": count}


@fault("pg_terminate_backend at 20/s", "database", weight=2)
def terminate(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return each(storm, chooser, "pg_terminate_backend")


@fault("pg_cancel_backend at 20/s", "database", weight=2)
def cancel(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return each(storm, chooser, "pg_cancel_backend")


@fault("lost LISTEN connections", "database", weight=2)
def lose_listeners(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """The workers' own sessions, those of their tasks not."""
    with storm.server.when_there() as admin:
        found = admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'storm' "
            "and query ~ 'pgqueue_(worker|message_(dequeue|settle|next_at))'"
        ).fetchall()
    return {"sessions": len(found)}


@fault("SIGKILL of a server process", "database", short=False, weight=0.5, stops_everybody=True)
def kill_backend(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """PostgreSQL ends all sessions and recovers."""
    with storm.server.when_there() as admin:
        pids = [pid for [pid] in admin.execute(SESSIONS)]
    if pids:
        os.kill(chooser.choice(pids), signal.SIGKILL)
    time.sleep(0.3)
    storm.server.heal()
    return {"killed": len(pids[:1])}
