"""Transactions of others that keep rows for longer than a lock lasts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.db import transaction

from tests.proofs.reliability import tasks
from tests.proofs.reliability.faults.fault import fault
from tests.proofs.reliability.generator import CROWD, CROWD_SIZE
from tests.proofs.reliability.workers import LOCK_SECONDS
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm

BEGUN = "select count(*) from pgqueue_message where id = any(%s) and worker is not null"
KEEP = "select id from pgqueue_message where id = any(%s) and id <> %s and worker is not null order by id for update"
STRAYS = """
insert into pgqueue_attempt
    (message_id, dequeue_at, created_at, finished_at, attempt, priority, final, status, queue)
select -n, 0, current_date - %s, current_date - %s + n * interval '1 second', 1, 0, true, 'cancelled', 'stray'
from generate_series(1, 12000) as n
"""


@fault("rows that an open transaction keeps", "database", weight=2)
def keep_rows(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """Of jobs that run: their workers can neither end them nor renew their locks, and have others to look after."""
    seconds = chooser.choice((0.3, 1.5, 4.0))
    with storm.server.when_there() as admin, admin.transaction(force_rollback=True):
        kept = admin.execute(
            "select id from pgqueue_message where worker is not null and queue <> 'bystanders' "
            "order by random() limit 20 for update skip locked"
        ).fetchall()
        time.sleep(seconds)
    return {"rows": len(kept), "seconds": seconds}


@fault("many rows of one worker that an open transaction keeps", "database", short=False)
def keep_a_crowd(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """All but one of a worker's jobs: the lock of that one must not run out."""
    ids = []
    with storm.enqueuing() as remember, transaction.atomic():
        for _ in range(CROWD_SIZE):
            token = storm.new_token()
            result = tasks.take.using(queue_name=CROWD).enqueue(token, 3 * LOCK_SECONDS)
            remember(token, result)
            ids.append(int(result.id))
    innocent, others = chooser.choice(ids), []
    with storm.server.when_there() as admin:
        wait_until(lambda: admin.execute(BEGUN, [ids]).fetchone() == (CROWD_SIZE,), "the crowd runs", 30.0)
        storm.innocents.append(innocent)
        with admin.transaction(force_rollback=True):
            others = admin.execute(KEEP, [ids, innocent]).fetchall()
            time.sleep(2 * LOCK_SECONDS)
    return {"rows": len(others)}


@fault("a request to cancel that is rolled back late", "database")
def ask_and_forget(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    with storm.server.when_there() as admin, admin.transaction(force_rollback=True):
        admin.execute("set local lock_timeout = '2s'")
        asked = admin.execute(
            "select pgqueue_message_request_cancel(array("
            "select id from pgqueue_message where worker is not null and queue <> 'bystanders' order by id limit 5))"
        ).fetchall()
        time.sleep(chooser.choice((0.2, 2.0)))
    return {"asked": len(asked)}


@fault("the workers' own rows are locked", "database")
def keep_workers(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    with storm.server.when_there() as admin, admin.transaction(force_rollback=True):
        admin.execute("set local lock_timeout = '2s'")
        admin.execute("select from pgqueue_worker for update")
        time.sleep(chooser.choice((0.3, 2.0)))
    return {}


@fault("strays of an old day", "database")
def stray(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    """They go to the default partition, get one of their own, and are dropped, while attempts end."""
    days_ago = 400 + chooser.randrange(300)
    with storm.server.when_there() as admin:
        admin.execute("set role storm")
        admin.execute(STRAYS, [days_ago, days_ago])
        changed = 0
        for _ in range(20):
            [[made]] = admin.execute("select pgqueue_attempt_maintain(7, 300)")
            changed += made
            time.sleep(0.05)
        left = admin.execute("delete from pgqueue_attempt where queue = 'stray'").rowcount
    return {"partitions made and dropped": changed, "left": left}
