"""Messages that no worker can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm

NOTE = "tests.proofs.reliability.tasks.note"
POISON = (
    ("null", NOTE),
    ("5", NOTE),
    ('{"args": 5}', NOTE),
    ('{"args": [], "kwargs": {"no": "such"}}', NOTE),
    ('{"args": [[[[[[[[[[]]]]]]]]]]], "kwargs": []}', NOTE),
    ("{}", "no.such.task"),
    ("{}", "os.abort"),
    ("{}", "tests.proofs.reliability.tasks.MANY"),
    ("{}", "'; drop table pgqueue_message; --"),
    ('{"args": ["' + "x" * 2_000_000 + '"], "kwargs": {}}', NOTE),
    # jsonb of 5 and 140 kB, with texts of 40 MB, and of more than PostgreSQL can send.
    ('{"args": [' + "1e131071," * 300 + '1], "kwargs": {}}', NOTE),
    ('{"args": [' + "1e131071," * 9000 + '1], "kwargs": {}}', NOTE),
)


@fault("poison content", "database", weight=2)
def poison(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    content, task = chooser.choice(POISON)
    with storm.server.when_there() as admin:
        admin.execute(
            "insert into pgqueue_message (content, task, dequeue_at, max_attempts) values (%s, %s, pgqueue_now(), 3)",
            [content, task],
        )
    return {"content": content[:40], "task": task}
