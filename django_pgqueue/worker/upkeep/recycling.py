"""Decides when a fresh process takes the place of a worker process that has done enough."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django_pgqueue.worker.run.watchdog import Watchdog
from django_pgqueue.worker.settings import MAX_RETIRING

if TYPE_CHECKING:
    from django_pgqueue.worker.run.slots import Slots
    from django_pgqueue.worker.settings import WorkerSettings
    from django_pgqueue.worker.upkeep.retirement import Retirement

logger = logging.getLogger("django_pgqueue.worker")

resource: Any = None
"""Python's module; None on Windows, which has none."""
with contextlib.suppress(ImportError):
    resource = import_module("resource")

LOOK_EVERY_SECONDS = 2.0
PAGE_BYTES = mmap.PAGESIZE


class Recycling:
    """Called by the process's thread alone: ``look_after`` and then ``retire`` in each turn, ``room`` for claims."""

    def __init__(self, settings: WorkerSettings, retirement: Retirement | None) -> None:
        self.max_jobs = settings.max_jobs
        self.max_memory_mb = settings.max_memory_mb
        self.slots = settings.threads
        self.retirement = retirement
        """None: no supervisor would replace this process."""
        self.watchdog = Watchdog()
        self.jobs = 0
        """How many jobs have ended in this process."""
        self._stuck: str | None = None
        self._large: str | None = None
        self._next_look = 0.0
        self._has_complained = False

    @property
    def is_stuck(self) -> bool:
        """Whether a task goes on after its time in this process, or a slot of it has died."""
        return self._stuck is not None

    def look_after(self, slots: Slots, *, patience_seconds: float) -> str | None:
        """Ends the attempts whose time is up, and those whose slot has died.  Returns which slots have died."""
        now = time.monotonic()
        for message in slots.limits.time_out(now):
            self.timed_out(message.id)
        if (reason := self.watchdog.look_if_due(slots, now=now)) is not None:
            self._stuck = reason  # more of the process may be broken
        if self.is_stuck:
            slots.limits.give_up(now, patience_seconds=patience_seconds)
        return reason

    def timed_out(self, message_id: int) -> None:
        """Notes that the process has to be replaced, because a task that goes on cannot be stopped."""
        self._stuck = f"the task of message {message_id} went on after its timeout"

    def room(self, unfinished: int) -> int:
        """Returns how many more messages the process may take beside ``unfinished`` ones."""
        if self.retirement is None:
            return sys.maxsize
        if self._large is not None:
            return 0
        return sys.maxsize if self.max_jobs is None else max(0, self.max_jobs - self.jobs - unfinished)

    def retire(self, *, unfinished: int) -> str | None:
        """Returns the reason if this process retires from now on.  ``unfinished``: how many messages it still holds.

        It waits until a slot is free: with all slots busy it could run nothing more anyhow, and a process beside it
        would run more at a time than the slots that were asked for.  A stuck process does not wait, because it cannot
        know which slots are busy.
        """
        reason = self._reason(self.jobs + unfinished)
        if self.retirement is None or reason is None or not (self.is_stuck or unfinished < self.slots):
            return None
        if self.retirement.is_possible():
            return reason if self.retirement.begin() else None
        if not self._has_complained:
            self._has_complained = True
            logger.warning(
                "not replaced pid=%s: %s, but %s earlier processes still have jobs to end",
                os.getpid(), reason, MAX_RETIRING,
            )  # fmt: skip
        return None

    def _reason(self, jobs: int) -> str | None:
        now = time.monotonic()
        # One that is too large before its first job has ended would be replaced by another such one, and none would do
        # anything.
        if self.max_memory_mb is not None and self.jobs and now >= self._next_look:
            self._next_look = now + LOOK_EVERY_SECONDS
            used_mb = memory_bytes() // 2**20
            if used_mb > self.max_memory_mb:
                self._large = f"{used_mb} MB of memory in use"
        enough = f"{jobs} jobs ended or begun" if self.max_jobs is not None and jobs >= self.max_jobs else None
        return self._stuck or self._large or enough


def memory_bytes() -> int:
    """Returns the memory that this process uses or, where the system does not show that, the most that it has used; 0
    where it shows neither.
    """
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except OSError:
        if resource is None:
            return 0
        most: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
