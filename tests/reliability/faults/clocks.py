"""The clock of a worker's host."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.reliability.faults.fault import Skipped, fault

if TYPE_CHECKING:
    import random

    from tests.reliability.storm import Storm


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
