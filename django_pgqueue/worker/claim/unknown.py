"""Messages that a worker does not know: it gives back what it lacks, and takes from the parked ones what it knows."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.logs import in_a_line
from django_pgqueue.tasks import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_pgqueue.consumer.polling import Polling
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import Line, Received
    from django_pgqueue.worker.claim.versions import Versions
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

LOOK_EVERY_SECONDS = 1.0
PAGE = 500
"""So many tasks with parked messages are read at a time; the next look continues behind them."""
MAX_UNPARKED, MAX_TRIED_AGAIN = 500, 100
"""So many messages are unparked for one claim; fewer if the worker could not take all of these tasks before."""
MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 1.0, 60.0
MAX_EXTRA = 1000


@dataclass(slots=True)
class Lacking:
    """A task of parked messages that this worker lacks, or whose arguments it could not take."""

    reason: str
    wait_seconds: float
    until: float
    """Not tried again before this time, by the monotonic clock."""
    seen: float


class Unknown:
    """Called by the process's thread alone.  Parked messages are a hint away from a worker that knows them: their
    parking wakes it, its row's refresh tells it that there are some, and while it has room it looks each second.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        session: Session,
        *,
        fail_after_seconds: int,
        polling: Polling,
        versions: Versions,
        changed: Callable[[], None],
    ) -> None:
        """``fail_after_seconds``: 0 gives nothing back.  ``changed`` is called when ``lacks`` has changed."""
        self.settings = settings
        self.session = session
        self.fail_after_seconds = fail_after_seconds
        self.polling = polling
        self.versions = versions
        self.changed = changed
        self.wanted: list[Line] = []
        """Parked messages that this worker knows."""
        self.extra = 0
        """The next claim takes so many more than there is room for, because it may find unknown ones alone."""
        self._lacking: dict[str, Lacking] = {}
        self._lacked: set[Line] = set()
        self._next_look = 0.0
        self._is_told = True
        self._after = ("", "")
        self._round_began = 0.0

    @property
    def lacks(self) -> list[str]:
        return sorted(self._lacking)

    # After a claim

    def sift(self, claimed: Sequence[Received]) -> tuple[list[Received], list[tuple[Received, str]]]:
        """Returns the messages that this worker knows, and the others with the reasons."""
        if not claimed or not self.fail_after_seconds:
            return list(claimed), []
        reasons = {task: registry.why_unknown(task) for task in {message.task or "" for message in claimed}}
        unknown = [(message, reason) for message in claimed if (reason := reasons[message.task or ""]) is not None]
        if len(unknown) < len(claimed):
            self.extra = 0
        else:
            self.none_runs(len(claimed))
        if not unknown:
            return list(claimed), []
        for message, reason in unknown:
            self.lacked(message.task or "", reason)
        return [message for message in claimed if reasons[message.task or ""] is None], unknown

    def none_runs(self, number: int) -> None:
        """Called when a claim has found so many messages, and this worker leaves all of them to others."""
        self.extra = min(MAX_EXTRA, 2 * self.extra + number)

    def lacked(self, task: str, reason: str) -> None:
        """Takes note that a message of the task was given back."""
        now = time.monotonic()
        lacking = self._lacking.get(task)
        if lacking is None:
            self._lacking[task] = Lacking(reason, MIN_WAIT_SECONDS, now + MIN_WAIT_SECONDS, now)
            logger.warning("unknown task=%s worker=%s: %s", in_a_line(task), self.session.consumer, in_a_line(reason))
            self.changed()
        elif now >= lacking.until:
            lacking.reason, lacking.seen = reason, now
            lacking.wait_seconds = min(MAX_WAIT_SECONDS, 2 * lacking.wait_seconds)
            lacking.until = now + lacking.wait_seconds

    # Parked messages

    def told(self) -> None:
        """Called when messages were parked that this worker may know."""
        self._is_told = True

    def seen(self, *, has_parked: bool) -> None:
        """Called when the worker's row was refreshed.  ``has_parked``: messages are parked."""
        if (has_parked or self._lacking) and time.monotonic() >= self._next_look:
            self._is_told = True

    def due_at(self) -> float:
        return 0.0 if self._is_told else float("inf")

    def look_if_due(self) -> None:
        now = time.monotonic()
        is_awake = not (self.polling.asleep or self.settings.burst)
        if self._is_told or (is_awake and now >= self._next_look):
            self._is_told = False
            self._next_look = now + LOOK_EVERY_SECONDS
            if not self.settings.quarantine:
                self._look(now)

    def unpark(self, room: int) -> None:
        """Makes parked messages ready, for the claim that follows in the same transaction."""
        now = time.monotonic()
        tried = [self._lacking[line.task] for line in self.wanted if line.task in self._lacking]
        tries = self.versions.tries(self.wanted, now) or bool(tried)
        limit = min(room, MAX_TRIED_AGAIN if tries else MAX_UNPARKED)
        unparked = functions.message_unpark(self.session.statements, self.wanted, limit=limit)
        for lacking in tried:  # if it lacks them again, it waits longer
            lacking.until = now
        if tries or unparked < limit:
            self.wanted = []
            self._is_told = unparked > 0 and not tries

    def _look(self, now: float) -> None:
        if self._after == ("", ""):
            self._round_began = now
        parked = functions.message_parked(self.session.statements, limit=PAGE, after=self._after)
        for one in parked:
            if self._serves(one.queue):
                self._sort(one.line, one.version, now)
        self._after = (parked[-1].queue, parked[-1].task) if len(parked) == PAGE else ("", "")
        if self._after == ("", ""):
            self._forget(self._round_began)
        if self.wanted:
            self.polling.notified()
        if lacked := [one.line for one in parked if one.line in self._lacked]:
            functions.message_unknown_fail(self.session.statements, lacked, seconds=self.fail_after_seconds)

    def _sort(self, line: Line, version: str | None, now: float) -> None:
        reason, lacking = registry.why_unknown(line.task), self._lacking.get(line.task)
        if reason is not None:
            self._lacked.add(line)
            if lacking is None:
                self.lacked(line.task, reason)
        elif self.versions.leaves(line, version, now):
            self._lacked.discard(line)
        elif lacking is None or now >= lacking.until:
            self._lacked.discard(line)
            if line not in self.wanted:
                self.wanted.append(line)
        else:
            self._lacked.add(line)
        if line.task in self._lacking:
            self._lacking[line.task].seen = now

    def _forget(self, since: float) -> None:
        """Forgets what has no parked message any more."""
        gone = [task for task, lacking in self._lacking.items() if max(lacking.seen, lacking.until) < since]
        for task in gone:
            del self._lacking[task]
        if gone:
            self._lacked = {line for line in self._lacked if line.task in self._lacking}
            self.changed()

    def _serves(self, queue: str) -> bool:
        if queue in self.settings.exclude_queues:
            return False
        return self.settings.queues is None or queue in self.settings.queues
