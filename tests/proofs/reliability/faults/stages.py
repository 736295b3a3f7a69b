"""SIGKILL of a worker process at each stage of its work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.proofs.reliability import traps
from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm

TRAP_SECONDS = 5.0


def kill_at(storm: Storm, stage: str) -> dict[str, Any]:
    """Lays a trap, and waits until a worker has died in it."""
    path = traps.lay(stage)
    deadline = time.monotonic() + TRAP_SECONDS
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    caught = not path.exists()
    path.unlink(missing_ok=True)
    return {"caught": caught}


@fault("kill between claim and start", "processes", weight=2)
def kill_claimed(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return kill_at(storm, "claimed")


@fault("kill inside the handler", "processes", weight=2)
def kill_in_the_handler(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return kill_at(storm, "in the handler")


@fault("kill after the writes", "processes", weight=2)
def kill_written(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return kill_at(storm, "written")


@fault("kill between completion and commit", "processes", weight=2)
def kill_completed(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return kill_at(storm, "completed")


@fault("kill after the commit", "processes", weight=2)
def kill_recorded(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return kill_at(storm, "recorded")


@fault("kill in a step", "processes", weight=2)
def kill_in_a_step(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return kill_at(storm, "in a step")


@fault("kill after the record of a step", "processes", weight=2)
def kill_after_a_step(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return kill_at(storm, "recorded a step")
