"""What people do to many messages at a time, while the workers work on them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


def answered(storm: Storm, sql: str) -> dict[str, Any]:
    with storm.server.when_there() as admin:
        return {"messages": len(admin.execute(sql.encode()).fetchall())}


@fault("mass cancel", "database")
def cancel(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return answered(
        storm,
        "select pgqueue_message_cancel(array("
        "select id from pgqueue_message where queue <> 'bystanders' order by id desc limit 100)) "
        "union all select pgqueue_message_request_cancel("
        "array(select id from pgqueue_message where worker is not null and queue <> 'bystanders' limit 10))",
    )


@fault("mass enqueue again", "database")
def enqueue_again(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return answered(
        storm,
        "select pgqueue_attempt_enqueue(array(select id from pgqueue_attempt "
        "where final and status in ('failed', 'cancelled') and task ~ '(pay|note|glance)' and queue <> 'bystanders' "
        "order by id desc limit 50))",
    )


@fault("mass change of priority and time", "database")
def move(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return answered(
        storm,
        "update pgqueue_message set priority = (id % 5) - 2, dequeue_at = dequeue_at + (id % 3) * 100 "
        "where unlock_at is null and queue <> 'bystanders' returning id",
    )


@fault("queues paused and resumed", "database")
def pause(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    with storm.server.when_there() as admin:
        admin.execute("select pgqueue_queue_pause(q, 'storm') from unnest('{default,mail}'::text[]) as q")
        time.sleep(0.7)
        admin.execute("select pgqueue_queue_resume(q) from unnest('{default,mail}'::text[]) as q")
    return {}
