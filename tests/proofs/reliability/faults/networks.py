"""The way between a worker and PostgreSQL: our proxy swallows, cuts, refuses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.proofs.reliability.faults.fault import fault
from tests.proofs.reliability.workers import LOCK_SECONDS
from tests.support.proxy import DROP

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


def disturb(storm: Storm, chooser: random.Random, **changes: Any) -> dict[str, Any]:
    seconds = chooser.choice((0.2, 1.0, LOCK_SECONDS + 1))
    for name, value in changes.items():
        setattr(storm.proxy, name, value)
    time.sleep(seconds)
    storm.proxy.cut()
    time.sleep(0.05)
    storm.proxy.heal()
    return {"seconds": seconds}


@fault("the answer after the commit swallowed", "database", weight=3)
def swallow_answers(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return disturb(storm, chooser, answers=DROP)


@fault("requests swallowed", "database", weight=2)
def swallow_requests(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return disturb(storm, chooser, requests=DROP)


@fault("half-open both ways", "database", weight=2)
def half_open(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return disturb(storm, chooser, requests=DROP, answers=DROP)


@fault("connections reset", "database", weight=2)
def cut(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    for _ in range(5):
        storm.proxy.cut()
        time.sleep(chooser.uniform(0, 0.3))
    return {"times": 5}


@fault("connections refused by the network", "database")
def refuse(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    storm.proxy.cut()
    return disturb(storm, chooser, refuses=True)
