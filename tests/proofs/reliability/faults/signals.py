"""What is sent to whole workers: killed, stopped and continued, asked to leave once and twice."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, InterfaceError, transaction

from tests.proofs.reliability import tasks
from tests.proofs.reliability.faults.fault import fault
from tests.proofs.reliability.workers import LOCK_SECONDS

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


LONG_JOBS = 12


@fault("kill a whole worker", "processes", weight=2)
def kill_whole(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    worker = chooser.choice(storm.workers.main)
    worker.kill()
    return {"worker": worker.name}


@fault("kill a worker process", "processes", weight=2)
def kill_process(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    worker = chooser.choice(storm.workers.main)
    for pid in worker.processes[:1]:
        worker.send(signal.SIGKILL, pid)
    return {"worker": worker.name}


@fault("kill a supervisor", "processes")
def kill_supervisor(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """Its processes notice, and leave."""
    worker = chooser.choice(storm.workers.main)
    with worker.guard:  # nobody takes the rest away before it had its time
        worker.send(signal.SIGKILL)
        deadline = time.monotonic() + 1.5
        while worker.processes and time.monotonic() < deadline:
            time.sleep(0.05)
    return {"worker": worker.name}


@fault("stand still beyond the lock", "processes", weight=2)
def stand_still(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """SIGSTOP, until others have taken over what it holds; then it goes on as if nothing had been.

    There is work that takes as long as a lock: who took over still has it when the first one ends it.
    """
    worker = chooser.choice(storm.workers.main)
    with contextlib.suppress(DatabaseError, InterfaceError), storm.enqueuing() as remember, transaction.atomic():
        for _ in range(LONG_JOBS):
            token = storm.new_token()
            remember(token, tasks.take.using(priority=10).enqueue(token, LOCK_SECONDS))
    time.sleep(0.3)
    processes = worker.processes
    for pid in processes:
        worker.send(signal.SIGSTOP, pid)
    time.sleep(LOCK_SECONDS + 0.5)
    for pid in processes:
        worker.send(signal.SIGCONT, pid)
    return {"worker": worker.name}


@fault("SIGTERM", "processes")
def terminate(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    worker = chooser.choice(storm.workers.main)
    facts = worker.stop()
    storm.stops.append(facts)
    return facts


@fault("SIGTERM twice", "processes")
def terminate_twice(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    worker = chooser.choice(storm.workers.main)
    facts = worker.stop(signals=2)
    storm.stops.append(facts)
    return facts


@fault("SIGTERM behind a proxy that hangs", "processes")
def terminate_behind_silence(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """What the worker's sessions of now send is acknowledged, and no answer comes."""
    storm.proxy.fall_silent()
    time.sleep(chooser.uniform(0, 1))
    facts = storm.workers.named("behind the proxy").stop()
    storm.stops.append(facts)
    return facts
