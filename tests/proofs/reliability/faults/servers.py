"""PostgreSQL as a whole: crashes, restarts, stays away, fails over."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


@fault("PostgreSQL -m immediate, restarted", "database", stops_everybody=True)
def crash(storm: Storm, chooser: random.Random) -> None:
    storm.server.crash()
    storm.server.heal()


@fault("PostgreSQL -m fast, restarted", "database", short=False, weight=0.5, stops_everybody=True)
def restart(storm: Storm, chooser: random.Random) -> None:
    storm.server.primary.end(signal.SIGINT)
    storm.server.heal()


@fault("PostgreSQL away", "database", weight=0.15, stops_everybody=True)
def away(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    seconds = 2.0 if storm.short else 30.0
    storm.server.crash()
    time.sleep(seconds)
    storm.server.heal()
    return {"seconds": seconds}


@fault("standby promoted", "database", weight=0.25, stops_everybody=True)
def fail_over(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """The primary crashes, and a standby that each commit has waited for takes its place.

    The worker behind the proxy sees the standby before it is promoted, when it can only be read.
    """
    began = time.monotonic()
    standby = storm.server.standby()
    time.sleep(0.5)
    storm.proxy.upstream = standby.port
    storm.proxy.cut()
    time.sleep(0.5)
    storm.server.fail_over(standby)
    if storm.pooler is not None:
        storm.pooler.lead_to(standby.port)
    return {"seconds": round(time.monotonic() - began, 1)}
