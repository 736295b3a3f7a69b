"""Deploys: workers change to another version of the application, forwards or back, in any order with the enqueues."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction

from tests.proofs.reliability import tasks
from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm

CALLS = 8
CREATE = """
select pgqueue_message_create(%s::jsonb, p_task => %s, p_max_attempts => %s, p_version => %s)
"""


@fault("a rollout", "processes", weight=4)
def roll_out(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """Some workers change, one after the other, and the web processes before them, between them or after them."""
    deploy = chooser.randrange(tasks.DEPLOYS)
    places = storm.workers.deployed
    chosen = chooser.sample(places, chooser.randint(1, len(places)))
    web = chooser.randint(0, len(chosen))
    for number in range(len(chosen) + 1):
        if number == web:
            enqueue(storm, chooser, deploy)
        if number < len(chosen):
            chosen[number].change(str(deploy), hard=chooser.random() < 0.2)
            time.sleep(chooser.uniform(0, 0.3))
    storm.rollouts += 1
    return {"deploy": deploy, "workers": [worker.name for worker in chosen], "web": web}


def enqueue(storm: Storm, chooser: random.Random, deploy: int) -> None:
    """As the web processes of that deploy do.  This process has all tasks, and no version."""
    known = [name for name, (deploys, _) in tasks.BROUGHT.items() if deploy in deploys]
    with storm.enqueuing() as remember, transaction.atomic(), connection.cursor() as cursor:
        for _ in range(CALLS):
            token, name = storm.new_token(), chooser.choice(known)
            content = {"args": [token, *tasks.BROUGHT[name][1]], "kwargs": {}}
            version = chooser.choice((None, str(deploy)))
            cursor.execute(CREATE, [json.dumps(content), f"{tasks.__name__}.{name}", tasks.MANY, version])
            remember(token, SimpleNamespace(id=cursor.fetchone()[0]))
