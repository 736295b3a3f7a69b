"""Messages that a worker does not know: it gives back what it lacks, and takes from the parked ones what it knows."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.consumer.parts import NOT_DUE
from django_pgqueue.logs import in_a_line
from django_pgqueue.tasks import registry
from django_pgqueue.values.versions import key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django_pgqueue.consumer.polling import Polling
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import Line, ParkedCall, Received
    from django_pgqueue.worker.claim.versions import Versions
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

LOOK_EVERY_SECONDS = 1.0
PAGE = 500
"""So many tasks with parked messages, or so many messages of one of them, are read at a time."""
MAX_UNPARKED = 500
"""So many messages are unparked for one claim."""
MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 1.0, 600.0
MAX_READ_LINES = 10
"""A look reads so many lines that this worker can take in part; the next one goes on with others."""
MAX_NAMED = 50
"""So many tasks that it lacks at the same time are logged, and stored at once; names may come from anybody."""
MAX_FITTING = 5000
MAX_REFUSED = 10_000
MAX_EXTRA = 1000
FIRST = (-(2**63), -(2**63))


@dataclass(slots=True)
class Lacking:
    """A task of parked messages that this worker lacks, or of which it could not take some arguments."""

    reason: str
    by_name: bool
    seen: float


@dataclass(slots=True)
class Reading:
    """How far this worker has read which messages of a line are its own: those whose arguments it can take, and that it
    does not leave to workers of a later version.

    It reads what was parked since, and later and later all of them: a transaction may have parked a message a while
    before it was committed.
    """

    after: tuple[int, int] = FIRST
    """(parked_at, id) of the last one that was read."""
    wait_seconds: float = MIN_WAIT_SECONDS
    again_at: float | None = None
    """All are read again at this time, by the monotonic clock; None: they are being read."""
    found: bool = False
    """It has found calls that this worker can take since it began with the first."""
    left: dict[bool, str] = field(default_factory=dict)
    """The latest version of the messages that are left to its workers: of the unknown ones, and of the others."""
    is_done: bool = False
    """It has read all of them, and none is left that this worker can take."""
    read_at: float = 0.0
    seen: float = 0.0

    def leave(self, version: str, *, unknown: bool) -> None:
        if unknown not in self.left or key(version) > key(self.left[unknown]):
            self.left[unknown] = version

    def restart(self) -> None:
        self.after, self.again_at, self.found = FIRST, None, False


class UnknownMessages:
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
        """Lines of parked messages that this worker knows."""
        self.fitting: list[int] = []
        """Parked messages of its own in lines that it can take in part."""
        self.extra = 0
        """The next claim takes so many more than there is room for, because it may find unknown ones alone."""
        self._lacking: dict[str, Lacking] = {}
        self._readings: dict[Line, Reading] = {}
        self._lacked: set[Line] = set()
        self._refused: set[int] = set()
        """Messages that were given back although their arguments seemed to fit: they are not tried again."""
        self._next_look = 0.0
        self._is_told = not settings.quarantine
        self._told_at = 0.0
        self._after = ("", "")
        self._round_began = 0.0

    @property
    def wants(self) -> bool:
        """Whether the next claim shall unpark messages."""
        return bool(self.wanted or self.fitting)

    @property
    def is_over(self) -> bool:
        """Whether a burst has no reason to look again."""
        return not (self.wants or self._is_told)

    @property
    def lets_rest(self) -> bool:
        """Whether no parked message is known of, as the row of a worker that rests has to say."""
        return self.is_over and not self._lacking

    @property
    def lacks(self) -> list[str]:
        """The tasks of parked messages that this worker does not know."""
        return sorted(task for task, lacking in self._lacking.items() if lacking.by_name)

    @property
    def refuses(self) -> list[str]:
        """The tasks that this worker knows, and of which it can take the arguments of no parked message."""
        busy = {line.task for line, reading in self._readings.items() if not reading.is_done}
        return sorted(task for task, lacking in self._lacking.items() if not lacking.by_name and task not in busy)

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
            self._note(message.task or "", reason, by_name=True)
        return [message for message in claimed if reasons[message.task or ""] is None], unknown

    def none_runs(self, number: int) -> None:
        """Called when a claim has found so many messages, and this worker leaves all of them to others."""
        self.extra = min(MAX_EXTRA, 2 * self.extra + number)

    def refused(self, message: Received, reason: str) -> None:
        """Takes note that the message was given back, because its arguments do not fit."""
        if len(self._refused) >= MAX_REFUSED:
            self._refused.clear()
        self._refused.add(message.id)
        task = message.task or ""
        line = functions.Line(message.queue, task)
        self._note(task, reason, by_name=registry.why_unknown(task) is not None)
        now = time.monotonic()
        self._readings.setdefault(line, Reading(read_at=now)).seen = now

    def left(self, messages: Iterable[Received]) -> None:
        """Takes note that the messages are left to workers of a later version: it reads which others of their lines are
        its own, and tries none of them.
        """
        if self.settings.quarantine:  # which takes no parked messages
            return
        now = time.monotonic()
        for message in messages:
            if message.version is not None:
                reading = self._readings.setdefault(functions.Line(message.queue, message.task or ""), Reading())
                reading.leave(message.version, unknown=message.unknown)
                reading.seen = now

    def _note(self, task: str, reason: str, *, by_name: bool) -> None:
        lacking = self._lacking.get(task)
        if lacking is None:
            self._lacking[task] = Lacking(reason, by_name, time.monotonic())
            if len(self._lacking) > MAX_NAMED:
                return
            logger.warning("unknown task=%s worker=%s: %s", in_a_line(task), self.session.consumer, in_a_line(reason))
            if len(self._lacking) == MAX_NAMED:
                logger.warning("unknown tasks worker=%s: others are not logged, see qstatus", self.session.consumer)
            self.changed()

    # Parked messages

    def told(self) -> None:
        """Called when messages were parked that this worker may know."""
        self._is_told, self._told_at = True, time.monotonic()
        self.polling.ends_rest()  # while any are parked, nobody rests: they are looked at again and again

    def seen(self, *, has_parked: bool) -> None:
        """Called when the worker's row was refreshed.  ``has_parked``: messages are parked."""
        if (has_parked or self._lacking) and time.monotonic() >= self._next_look:
            self._is_told = True

    def due_at(self) -> float:
        return 0.0 if self._is_told else float("inf")

    def look_if_due(self) -> object:
        now = time.monotonic()
        is_awake = not (self.polling.asleep or self.polling.rests or self.settings.burst)
        if not self._is_told and (not is_awake or now < self._next_look):
            return NOT_DUE
        self._is_told = False
        self._next_look = now + LOOK_EVERY_SECONDS
        if not self.settings.quarantine:
            self._look(now)
        if self.settings.burst:  # which claims once more, and ends when it finds nothing
            self.polling.notified()
        return None

    def unpark(self, room: int) -> None:
        """Makes parked messages ready, for the claim that follows in the same transaction."""
        room = min(room, MAX_UNPARKED)
        ids, self.fitting = self.fitting[:room], self.fitting[room:]
        # The last claim has taught something.
        lines = [line for line in self.wanted if line.task not in self._lacking and not self._has_left(line)]
        limit = room - len(ids)
        unparked = functions.message_unpark(self.session.statements, lines, limit=limit, ids=ids)
        lines = lines[1:] + lines[:1]  # where there are fewer slots than lines, each has its turn to be the first
        self.wanted = lines if unparked - len(ids) >= limit > 0 or (lines and not limit) else []
        self._is_told = self._is_told or unparked > 0

    def claimed(self, messages: int, *, room: int) -> None:
        """Called after a claim that was preceded by ``unpark``.  What it could not take waits for other reasons, as for
        its channel: more of it need not be ready yet.
        """
        if messages < room and not self.settings.burst:
            self.wanted = []
            self._is_told = False

    def _look(self, now: float) -> None:
        if self._after == ("", ""):
            self._round_began = now
        parked = functions.message_parked(self.session.statements, limit=PAGE, after=self._after)
        partly = [one.line for one in parked if self._serves(one.queue) and self._sort(one.line, one.version, now)]
        self._after = (parked[-1].queue, parked[-1].task) if len(parked) == PAGE else ("", "")
        if self._after == ("", ""):
            self._forget(self._round_began)
        partly.sort(key=lambda line: self._readings[line].read_at)
        for line in partly[:MAX_READ_LINES]:
            self._read(line, now)
        if any(self._readings[line].read_at < self._told_at for line in partly[MAX_READ_LINES:]):
            self._is_told = True  # it may be in one of these
        if self.wants:
            self.polling.notified()
        if lacked := [one.line for one in parked if one.line in self._lacked]:
            functions.message_unknown_fail(self.session.statements, lacked, seconds=self.fail_after_seconds)

    def _sort(self, line: Line, version: str | None, now: float) -> bool:
        """Returns whether this worker can take the line in part, and has to read it.  ``version``: that of the message
        that would be taken first.
        """
        reason, lacking = registry.why_unknown(line.task), self._lacking.get(line.task)
        if reason is not None:
            self._lacked.add(line)
            self._note(line.task, reason, by_name=True)
            self._lacking[line.task].seen = now
            return False
        if lacking is not None and lacking.by_name:  # its module was imported meanwhile
            del self._lacking[line.task]
            lacking = None
        reading = self._readings.get(line)
        if reading is not None and not all(
            self.versions.leaves(line, latest, unknown=unknown) for unknown, latest in reading.left.items()
        ):  # no worker of that version lives any more, or those that live have refused what is unknown
            reading.left = {}
            reading.restart()
        if version is not None and self.versions.leaves(line, version):
            self._readings.setdefault(line, Reading()).leave(version, unknown=False)
        if lacking is None and not self._has_left(line):
            self._lacked.discard(line)
            if line not in self.wanted:
                self.wanted.append(line)
            return False
        if lacking is not None:
            lacking.seen = now
        self._readings.setdefault(line, Reading()).seen = now
        return True

    def _has_left(self, line: Line) -> bool:
        reading = self._readings.get(line)
        return reading is not None and bool(reading.left)

    def _read(self, line: Line, now: float) -> None:
        if len(self.fitting) >= MAX_FITTING:
            return
        reading = self._readings[line]
        was_done = reading.is_done
        if reading.again_at is not None and now >= reading.again_at:
            reading.restart()
        calls = functions.message_parked_calls(self.session.statements, line, after=reading.after, limit=PAGE)
        fitting = self._fitting(line, reading, calls)
        self.fitting += fitting
        reading.read_at = now
        reading.found = reading.found or bool(fitting)
        if calls:
            reading.after = (calls[-1].parked_at, calls[-1].id)
        if len(calls) == PAGE:
            self._is_told = True
        elif reading.again_at is None:
            longer = min(MAX_WAIT_SECONDS, 2 * reading.wait_seconds)
            reading.wait_seconds = MIN_WAIT_SECONDS if reading.found else longer
            reading.again_at = now + reading.wait_seconds
        is_at_the_end = reading.again_at is not None
        reading.is_done = not self.fitting and (was_done or is_at_the_end)
        if reading.is_done and line.task in self._lacking:
            self._lacked.add(line)
        else:
            self._lacked.discard(line)
        if reading.is_done != was_done:
            self.changed()

    def _fitting(self, line: Line, reading: Reading, calls: Sequence[ParkedCall]) -> list[int]:
        fitting, parameters = [], registry.parameters(line.task)
        leaves = {
            (version, unknown): self.versions.leaves(line, version, unknown=unknown)
            for version, unknown in {(call.version, call.unknown) for call in calls}
        }
        for (version, unknown), is_left in leaves.items():
            if version is not None and is_left:
                reading.leave(version, unknown=unknown)
        for call in calls:
            if leaves[call.version, call.unknown] or call.id in self._refused:
                continue
            refusal = None
            # What was only left to this worker is tried once, whatever its arguments: given back, it is unknown.  So
            # another worker may take it, and it fails in the end.
            if call.args is not None and call.unknown:
                refusal = parameters.refusal(range(call.args), dict.fromkeys(call.kwargs or ()))
            if refusal is None:
                fitting.append(call.id)
            else:
                self._note(line.task, f"It cannot take these arguments: {refusal}.", by_name=False)
        return fitting

    def _forget(self, since: float) -> None:
        """Forgets what has no parked message any more."""
        before = self.lacks, self.refuses
        self._lacking = {task: lacking for task, lacking in self._lacking.items() if lacking.seen >= since}
        self._readings = {line: reading for line, reading in self._readings.items() if reading.seen >= since}
        self._lacked = {line for line in self._lacked if line.task in self._lacking}
        if (self.lacks, self.refuses) != before:
            self.changed()

    def _serves(self, queue: str) -> bool:
        if queue in self.settings.exclude_queues:
            return False
        return self.settings.queues is None or queue in self.settings.queues
