"""Makes the load, and removes it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction

from example_project.shop.load import statements

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

KINDS = ("mail", "images", "billing", "flaky", "search", "imports", "webhooks", "exports")
FLOOD = 0.3
"""Of the messages.  With others of its queue, they are about half of those that are ready."""
DAYS = 7
BATCH = 100_000
"""Attempts of one transaction: the roll-up takes no part of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much there is of everything."""

    messages: int
    attempts: int
    queues: int
    channels: int
    paused: bool = True

    @property
    def flood(self) -> int:
        return int(self.messages * FLOOD)

    @property
    def names(self) -> list[str]:
        """
        >>> Load(messages=0, attempts=0, queues=3, channels=1).names
        ['load-bulk', 'load-mail-1', 'load-images-2']
        """
        return ["load-bulk", *(f"load-{KINDS[(n - 1) % len(KINDS)]}-{n}" for n in range(1, self.queues))]


def make(load: Load, say: Callable[[str], None]) -> None:
    """Make the load anew, in transactions of a bounded size: after an interruption, call it again."""
    clear(say)
    at: dt.datetime = one("select pgqueue_clock()")
    # Half of the paused queues would be served by a worker, and half of the others.
    queues = load.names
    asked: dict[str, Any] = {
        "at": at, "messages": load.messages, "attempts": load.attempts, "queues": queues, "flood": load.flood,
        "channels": load.channels, "days": DAYS, "served": queues[: max(1, len(queues) // 2)],
        "slots": 1 + load.messages // 500, "paused": queues if load.paused else [],
    }  # fmt: skip
    asked["first"] = one(statements.RESERVE, asked)
    make_attempts(asked, say)
    with step(say, f"{load.messages:,} messages in {load.queues} queues and {load.channels} channels"):
        make_messages(asked | {"first": asked["first"] + load.attempts})
    with step(say, "vacuum and analyze"):
        run("vacuum (analyze) pgqueue_message, pgqueue_attempt, pgqueue_channel, pgqueue_lane, pgqueue_arrival")


def make_attempts(asked: dict[str, Any], say: Callable[[str], None]) -> None:
    attempts = asked["attempts"]
    with step(say, f"{attempts:,} attempts of the last {DAYS} days"):
        run(statements.PARTITIONS, asked)
        for low in range(1, attempts + 1, BATCH):
            run(statements.ATTEMPTS, asked | {"low": low, "high": min(attempts, low + BATCH - 1)})
    with step(say, "the roll-up of today and yesterday, as workers make it"):
        add_up()
        while one("select pgqueue_rollup_prune()"):
            pass


def add_up() -> None:
    """Add ended attempts up, as a worker does within a minute of an end of its own."""
    while one("select pgqueue_rollup_add(0, %(most)s)", {"most": BATCH}):
        pass


def make_messages(asked: dict[str, Any]) -> None:
    with transaction.atomic():
        run("select setseed(0.42)")
        run(statements.PAUSE, asked)
        run(statements.WORKERS, asked)
        run(statements.MESSAGES, asked)
        run(statements.STEPS)
        run(statements.APPROVALS)
    run(statements.LIMITS, asked)
    while one("select pgqueue_lane_arm(100000)"):
        pass


def clear(say: Callable[[str], None]) -> None:
    """Remove everything that a load has made."""
    with step(say, "the rows of an earlier load are removed"), transaction.atomic():
        for statement in statements.CLEAR_DURABLE:
            run(statement)
        for table, others in statements.OTHERS.items():
            run(f"delete from {table} where starts_with(queue, 'load-')" if one(others) else f"truncate {table}")  # noqa: S608 - both are named above
        for statement in statements.CLEAR:
            run(statement)


@contextmanager
def step(say: Callable[[str], None], what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    say(f"{time.monotonic() - began:7.1f} s  {what}")


def run(statement: str, asked: dict[str, Any] | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, asked)


def one(statement: str, asked: dict[str, Any] | None = None) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, asked)
        row: tuple[Any, ...] = cursor.fetchone()
    return row[0]
