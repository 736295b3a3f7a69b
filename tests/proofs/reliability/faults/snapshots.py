"""Transactions that stay open: one that holds a snapshot, and one that commits late, behind the others' floors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.db import transaction

from tests.proofs.reliability import tasks
from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


@fault("pinned snapshot", "database", weight=2)
def pin(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    seconds = chooser.choice((1.0, 3.0))
    with storm.server.when_there() as admin, admin.transaction():
        admin.execute("set transaction isolation level repeatable read")
        admin.execute("select count(*) from pgqueue_message")
        time.sleep(seconds)
    return {"seconds": seconds}


@fault("late commit below the floor", "database", weight=2)
def commit_late(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """While a snapshot is pinned, so that the workers start behind their floors."""
    with storm.server.when_there() as admin, admin.transaction():
        admin.execute("set transaction isolation level repeatable read")
        admin.execute("select count(*) from pgqueue_message")
        with storm.enqueuing() as remember, transaction.atomic():
            for _ in range(20):
                token = storm.new_token()
                remember(token, tasks.pay.enqueue(token))
            time.sleep(chooser.uniform(0.5, 1.5))
    return {"messages": 20}
