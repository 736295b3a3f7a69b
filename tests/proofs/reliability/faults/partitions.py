"""A partition of the history that is due to be dropped, and somebody who reads it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


@fault("reader of a partition to be dropped", "database")
def read(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    days_ago = 40 + chooser.randrange(300)
    with storm.server.when_there() as admin, storm.server.connect() as reader:
        admin.execute("set role storm")
        admin.execute("set lock_timeout = '5s'")
        [[name]] = admin.execute(
            "select 'pgqueue_attempt_' || to_char(current_date - %s, 'YYYYMMDD') "
            "from pgqueue_attempt_partition(current_date - %s)", [days_ago, days_ago],
        )  # fmt: skip
        with reader.transaction():
            reader.execute(f"select count(*) from {name}".encode())
            began = time.monotonic()
            admin.execute("select pgqueue_attempt_maintain(7, 30)")
            waited = time.monotonic() - began
        admin.execute("select pgqueue_attempt_maintain(7, 30)")
    return {"waited_seconds": round(waited, 2)}
