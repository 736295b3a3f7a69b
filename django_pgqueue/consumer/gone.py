"""Consumers that are gone, with their machine or their process tree: the others end what they held.

Nobody reports such a death.  The server ends the sessions of the dead, and so their advisory locks (``Hold``), and
their rows are not renewed.  The protocol and its interleavings are modelled in tests/proofs/models/protocols/deaths.py.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.consumer.parts import NOT_DUE
from django_pgqueue.consumer.session import MAX_RECONNECT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.consumer.session import Session

logger = logging.getLogger("django_pgqueue.worker")

AGAIN_SECONDS = 1.0
RETURN_SECONDS = 2 * MAX_RECONNECT_SECONDS
"""What has broken the connection of this consumer may have broken those of all others: they have this long to come
back, before this one takes any of them for dead."""


class Gone:
    """Called by the consumer's thread alone."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.next_look = float("inf")
        self._not_before = 0.0

    def misses_one(self) -> None:
        """Called when a consumer has not been seen for some seconds."""
        self.next_look = min(self.next_look, max(time.monotonic(), self._not_before))

    def reconnected(self) -> None:
        self.next_look, self._not_before = float("inf"), time.monotonic() + RETURN_SECONDS

    def look_if_due(self, found: Callable[[], object]) -> object:
        """Calls ``found`` if messages have become ready.  Returns NOT_DUE if it was not due."""
        now = time.monotonic()
        if now < self.next_look:
            return NOT_DUE
        self.next_look, self._not_before = float("inf"), now + AGAIN_SECONDS
        if lost := functions.worker_expire(self.session.statements):
            logger.warning("lost attempts=%s of workers that are gone worker=%s", lost, self.session.consumer)
            self.next_look = now  # there may be more
            found()
        return None
