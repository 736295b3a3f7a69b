"""Orders of people to this process: to pause, to go on, to stop, to run more or fewer jobs at a time.

They stand in the row of the process, which reads them whenever it refreshes the row.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.functions import Company

logger = logging.getLogger("django_pgqueue.worker")


class Orders:
    """Called by the process's thread alone."""

    def __init__(
        self,
        slots: int,
        *,
        pause: Callable[[], object],
        resume: Callable[[], object],
        stop: Callable[[], object],
        resize: Callable[[int], object],
    ) -> None:
        self.is_paused = False
        self.slots = slots
        self._pause, self._resume, self._stop, self._resize = pause, resume, stop, resize
        self._is_stopped = False

    def read(self, company: Company, *, worker: str) -> None:
        """Follows what the row says."""
        if company.ordered == "stop" and not self._is_stopped:
            self._is_stopped = True
            logger.info("ordered to stop worker=%s by=%s", worker, company.ordered_by)
            self._stop()
        if (company.ordered == "pause") != self.is_paused:
            self.is_paused = not self.is_paused
            word = "pause" if self.is_paused else "resume"
            logger.info("ordered to %s worker=%s by=%s", word, worker, company.ordered_by)
            (self._pause if self.is_paused else self._resume)()
        if company.ordered_slots not in (None, self.slots):
            self.slots = company.ordered_slots
            logger.info("ordered to have slots=%s worker=%s by=%s", self.slots, worker, company.ordered_by)
            self._resize(self.slots)
