"""Does the edits that people have asked for: actions for everything that matches a filter.

An edit needs no look of its own: the statement that refreshes a worker's row says whether there is one.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.backend.lookup import version_of

if TYPE_CHECKING:
    from django_pgqueue.consumer.background import Connect

logger = logging.getLogger("django_pgqueue.worker")

MAX_SHARE = 0.5
"""An edit takes at most this share of the time, so that the jobs go on."""


class Edits:
    """Runs in the thread of a ``Background``, a step at a time.  Each step is a transaction of its own."""

    name = "edits"
    max_again_seconds = 10.0

    def __init__(self, database: str) -> None:
        self.database = database
        self.next_at = float("inf")
        self._edit: int | None = None
        """The edit of the last step."""

    def wanted(self) -> None:
        """Called by the process's thread when there is an edit to do."""
        if self.next_at == float("inf"):
            self.next_at = 0.0

    def due_at(self) -> float:
        return self.next_at

    def do(self, connect: Connect) -> None:
        connection = connect().connection
        began = time.monotonic()
        edit = functions.edit_step(connection, version=version_of(self.database))
        if edit is not None and edit != self._edit:
            logger.info("edit id=%s goes on in this worker", edit)
        self._edit = edit
        now = time.monotonic()
        # Without one, another worker has it, or there is none any more: the row's next refresh tells.
        self.next_at = float("inf") if edit is None else now + (now - began) * (1 - MAX_SHARE) / MAX_SHARE
