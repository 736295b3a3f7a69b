"""Adds ended attempts up, once a minute while there are any: for the overview, qstatus and Insights.

Of all workers one does it, and the others find that it was done.  A worker asks when it starts, for those that did not
live for a minute, such as bursts.  One that has ended nothing since its last call does not ask, so an idle database
stays idle.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django_pgqueue import functions

if TYPE_CHECKING:
    import psycopg

    from django_pgqueue.consumer.background import Connect

EVERY_SECONDS = 60.0
FREE_SECONDS = 50
"""Nobody adds up again before that, whichever worker did it last."""
MAX_STEPS, PAUSE_SECONDS = 10, 1.0
"""A worker that has a long history to add up pauses after so many steps, each a transaction of its own."""


class RollingUp:
    """Runs in the thread of a ``Background``.  The process's thread says that something has ended."""

    name = "roll-up"
    max_again_seconds = 600.0

    def __init__(self) -> None:
        self.has_ended = True
        self.next_at = time.monotonic()

    def ended(self) -> None:
        """Called after each record of ends."""
        if not self.has_ended:
            self.has_ended = True
            self.next_at = max(self.next_at, time.monotonic() + EVERY_SECONDS)

    def due_at(self) -> float:
        return self.next_at if self.has_ended else float("inf")

    def do(self, connect: Connect) -> None:
        self.has_ended = False  # before it adds up: what ends meanwhile is for the next call
        try:
            has_more = self._add_up(connect().connection)
        except Exception:  # what has ended is not in the figures yet
            self.has_ended = True
            raise
        if has_more:
            self.has_ended, self.next_at = True, time.monotonic() + PAUSE_SECONDS

    def _add_up(self, connection: psycopg.Connection[Any]) -> bool:
        """Returns whether there is more."""
        for _ in range(MAX_STEPS):
            with connection.transaction():
                if not functions.rollup_add(connection, every_seconds=FREE_SECONDS):
                    return False
        return True
