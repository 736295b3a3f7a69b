"""PgBouncer goes away and comes back, with all transactions that it was in the middle of."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

from tests.proofs.reliability.faults.fault import Skipped, fault
from tests.support.pgbouncer import MISSING

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


@fault("PgBouncer restarted", "database", weight=2)
def restart(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    if storm.pooler is None:
        raise Skipped(MISSING)
    number = chooser.choice((signal.SIGTERM, signal.SIGKILL))
    seconds = chooser.choice((0.0, 0.5, 4.0))
    storm.pooler.end(number)
    time.sleep(seconds)
    storm.pooler.start()
    return {"signal": number.name, "seconds": seconds}
