"""Collects the ends of attempts and writes them, so that none of them holds up another."""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors

from django_pgqueue import functions
from django_pgqueue.consumer.errors import BUSY_ERRORS, first_line, is_of_the_connection, is_refused
from django_pgqueue.functions import Error
from django_pgqueue.worker.record.record import Successes, record
from django_pgqueue.worker.run.outcome import Committed, EndedAttempt, Failed, GivenBack, Succeeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django_pgqueue.consumer.session import Session

logger = logging.getLogger("django_pgqueue.worker")

RECORD_WITHIN_SECONDS = 0.02
MAX_RECORDED = 1000
MANY = 100
"""With fewer ends, preparing the statement is not worth it."""
BLOCKED_SECONDS = 0.25
"""The wait before another try for the ends that could not be written."""
LEAVE_SECONDS = 2.0
"""A worker that leaves tries this long to record the ends whose rows another session has locked."""
MAX_REFUSALS = 3
"""An end that PostgreSQL refuses this often is stored as a failure with a short reason instead."""
MAX_SHORTAGES = 240
"""The same for an end that finds no memory, or no room for another lock, on the server: others have taken it, and may
give it back within a minute."""

TOLD_AFTER = 3

Key = tuple[int, int, str]


class Recorder:
    """Called by the process's thread alone: ``add`` when attempts have ended, ``write_if_due`` in each turn.

    ``on_recorded`` gets the ends that are dealt with, and by (id, attempt) the status of those that did not end as
    their outcome says.  An end whose row another session has locked waits in ``blocked``, and so does one that
    PostgreSQL refuses; the others are written.  An error of the connection is raised, and what was not written is kept.
    """

    def __init__(
        self,
        session: Session,
        *,
        announce: Callable[[Callable[[], None]], None],
        on_recorded: Callable[[list[EndedAttempt], dict[tuple[int, int], str]], None],
    ) -> None:
        self.session = session
        self.announce = announce
        self.on_recorded = on_recorded
        self.unwritten: list[EndedAttempt] = []
        self.blocked: list[EndedAttempt] = []
        self._prepared: Successes | None = None
        self._first_ended = self._retry_at = self._not_before = 0.0
        self.fails = False
        """Whether ends are kept that could not be written because of the connection, or of the server."""
        self._has_failed = False
        """The same, since the last pause."""
        self._refusals: dict[Key, int] = {}
        self._blocked: dict[Key, int] = {}

    def __len__(self) -> int:
        """Returns how many ends are not written yet."""
        return len(self.unwritten) + len(self.blocked)

    @property
    def unrecorded(self) -> list[EndedAttempt]:
        return [*self.unwritten, *self.blocked]

    def add(self, ends: Sequence[EndedAttempt], *, now: float) -> None:
        if not self.unwritten:
            self._first_ended = now
        self.unwritten += ends

    def prepare(self) -> None:
        """Prepares what ``write_if_due`` sends for successes.  Called while PostgreSQL works on another statement."""
        # Under the name that this process has now: after a failover, the claim that is on its way may give it messages
        # back that it held under another name.
        ends, worker = self.unwritten, self.session.consumer
        if self._prepared is None and len(ends) >= MANY and all(_succeeded_under(worker, end) for end in ends):
            with suppress(MemoryError):  # they are written as others are
                self._prepared = Successes.of(list(ends), worker=worker)

    def pause(self, seconds: float, *, now: float) -> None:
        """Writes nothing for ``seconds``, and then at once: whatever breaks the next connection shall not be first.
        Where these writes have just failed on a connection that is open, the other parts of the worker come first.
        """
        self._prepared = None
        self.fails = self.fails or self._has_failed
        comes_last, self._has_failed = self._has_failed and not self.session.is_closed, False
        self._not_before = now + seconds + (RECORD_WITHIN_SECONDS if comes_last else -RECORD_WITHIN_SECONDS)

    def due_at(self, *, busy: bool, ended: int = 0) -> float:
        """Returns when to write, by the monotonic clock.  ``busy``: more ends will come, and can be written together.
        ``ended``: so many wait in the slots.
        """
        due = time.monotonic() + (RECORD_WITHIN_SECONDS if busy else 0) if ended else float("inf")
        if self.unwritten:
            wait = busy and self._prepared is None and len(self.unwritten) < MAX_RECORDED
            due = min(due, max(self._not_before, self._first_ended + (RECORD_WITHIN_SECONDS if wait else 0)))
        return min(due, max(self._not_before, self._retry_at)) if self.blocked else due

    def write_if_due(self, *, now: float, busy: bool) -> None:
        if now < self._not_before:
            return
        self._has_failed = True
        if self._prepared is not None:
            self._write_prepared(self._prepared, now=now)
        waits = busy and len(self.unwritten) < MAX_RECORDED and now - self._first_ended < RECORD_WITHIN_SECONDS
        if self.unwritten and not waits:
            self.write()
        if self.blocked and now >= self._retry_at:
            self.write_blocked(now=now)
        self._has_failed = False
        if not self.unwritten:
            self.fails = False

    def _write_prepared(self, successes: Successes, *, now: float) -> None:
        """Writes what is prepared.  What has ended since then may wait for others."""
        self._prepared = None
        self.unwritten, self._first_ended = self.unwritten[len(successes.ends) :], now
        try:
            self._write(successes.ends, successes)
        except BaseException:
            self.unwritten = [*successes.ends, *self.unwritten]
            raise

    def write(self) -> None:
        self._prepared = None
        ends, self.unwritten = self.unwritten, []
        batches = deque(_batches(ends))
        try:
            while batches:
                self._write(batches[0])
                batches.popleft()
        except BaseException:
            self.unwritten = [*chain(*batches), *self.unwritten]
            raise

    def write_the_last(self, *, pause: Callable[[float], None], is_hurried: Callable[[], bool]) -> None:
        """Writes all ends before the process leaves.  Blocked ends get another moment."""
        self.write()
        leave_by = time.monotonic() + LEAVE_SECONDS
        while self.blocked and time.monotonic() < leave_by and not is_hurried():
            self.write_blocked(now=time.monotonic())
            pause(BLOCKED_SECONDS)

    def write_blocked(self, *, now: float) -> None:
        """Tries once more to write the ends that were blocked."""
        self._retry_at = now + BLOCKED_SECONDS
        ends, self.blocked = self.blocked, []
        batches = deque(_batches(ends))
        try:
            while batches:
                self._write_unlocked(batches[0])
                batches.popleft()
        except BaseException:
            self.blocked = [*chain(*batches), *self.blocked]
            raise

    def _write(self, batch: list[EndedAttempt], prepared: Successes | None = None) -> None:
        """``prepared``: the same ends."""
        try:
            otherwise = self._record(batch) if prepared is None else prepared.record(self.session.statements)
        except (psycopg.Error, UnicodeError) as error:
            self._not_written(batch, error)
        else:
            self._recorded(batch, otherwise)

    def _not_written(self, batch: list[EndedAttempt], error: Exception) -> None:
        if is_of_the_connection(self.session.connection, error):
            raise error
        if isinstance(error, BUSY_ERRORS):
            self._write_unlocked(batch)
        elif not is_refused(error):  # a right that is missing, a function that is not there
            self._block(batch, error)
        elif len(batch) > 1:
            for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                self._write(half)
        else:
            self._refused(batch[0], error)

    def _write_unlocked(self, batch: list[EndedAttempt]) -> None:
        """Writes the ends whose rows no session has locked, without a wait."""
        free, locked = batch, set[int]()
        tells: list[Callable[[], None]] = []
        try:
            with self.session.transaction():
                locked = functions.message_locked(self.session.statements, [end.message.id for end in batch])
                free = [end for end in batch if end.message.id not in locked]
                otherwise = self._record(free, announce=tells.append)
        except (psycopg.Error, UnicodeError) as error:
            if is_of_the_connection(self.session.connection, error):
                raise
            self._not_written_unlocked(free, error)
        else:
            self._recorded(free, otherwise)
            for tell in tells:  # now that others see the ends
                self.announce(tell)
        if locked:
            self._block(
                [end for end in batch if end.message.id in locked],
                "an open transaction of another session has locked its row",
            )

    def _not_written_unlocked(self, free: list[EndedAttempt], error: Exception) -> None:
        if is_refused(error) and len(free) > 1:
            for end in free:
                self._write_unlocked([end])
        elif is_refused(error):
            self._refused(free[0], error)
        else:
            self._block(free, error)

    def _block(self, ends: list[EndedAttempt], reason: Exception | str) -> None:
        """Keeps ends for another try.  An end that is blocked only for a moment is not worth a line."""
        self.blocked += ends
        for end in ends:
            times = self._blocked[_key(end)] = self._blocked.get(_key(end), 0) + 1
            if times == TOLD_AFTER:
                logger.warning(
                    "not recorded yet id=%s task=%s attempt=%s: %s",
                    end.message.id,
                    end.message.task,
                    end.message.attempt,
                    first_line(reason) if isinstance(reason, Exception) else reason,
                )

    def _refused(self, end: EndedAttempt, error: Exception) -> None:
        refusals = self._refusals[_key(end)] = self._refusals.get(_key(end), 0) + 1
        if refusals < _patience(end, error):
            self._block([end], error)
            return
        reason = first_line(error)
        logger.error(
            "refused id=%s task=%s attempt=%s: PostgreSQL cannot store its end, and the message fails: %s",
            end.message.id, end.message.task, end.message.attempt, reason,
        )  # fmt: skip
        failed = Failed(
            Error(message=f"PostgreSQL cannot store the end of the attempt ({end.outcome.status}): {reason}")
        )
        try:
            otherwise = self._record([replace(end, outcome=failed)])
        except (psycopg.Error, UnicodeError) as again:
            is_short = isinstance(again, (*BUSY_ERRORS, errors.OutOfMemory))
            if is_short or is_of_the_connection(self.session.connection, again):
                self._block([end], again)
                return
            logger.error(  # noqa: TRY400 -- the reason says it all
                "given up id=%s attempt=%s: PostgreSQL cannot store its failure either; its lock runs out: %s",
                end.message.id, end.message.attempt, first_line(again),
            )  # fmt: skip
            otherwise = {_key(end)[:2]: "lost"}
        else:
            if end.outcome.status != "failed":
                otherwise = {_key(end)[:2]: "failed"} | otherwise
        self._recorded([end], otherwise)

    def _record(
        self, batch: list[EndedAttempt], *, announce: Callable[[Callable[[], None]], None] | None = None
    ) -> dict[tuple[int, int], str]:
        """``announce``: in the place of the recorder's own, in a transaction that goes on."""
        if not batch:
            return {}
        worker = batch[0].message.worker
        return record(self.session.statements, batch, worker=worker, announce=announce or self.announce)

    def _recorded(self, batch: list[EndedAttempt], otherwise: dict[tuple[int, int], str]) -> None:
        if self._blocked or self._refusals:
            for end in batch:
                self._blocked.pop(_key(end), None)
                self._refusals.pop(_key(end), None)
        if batch:
            self.on_recorded(batch, otherwise)


def _succeeded_under(worker: str, end: EndedAttempt) -> bool:
    return isinstance(end.outcome, Succeeded) and end.message.worker == worker


def _patience(end: EndedAttempt, error: Exception) -> int:
    if isinstance(error, errors.OutOfMemory):
        return MAX_SHORTAGES
    return 1 if isinstance(end.outcome, Failed) else MAX_REFUSALS


def _key(end: EndedAttempt) -> Key:
    return end.message.id, end.message.attempt, end.message.worker


def _batches(ends: list[EndedAttempt]) -> Iterator[list[EndedAttempt]]:
    """Yields what one statement can write: the others one by one, then the successes of each worker's name, and what
    each gives back.
    """
    successes, unknown = [], []
    for end in ends:
        if isinstance(end.outcome, (Succeeded, Committed)):
            successes.append(end)
        elif isinstance(end.outcome, GivenBack):
            unknown.append(end)
        else:
            yield [end]
    for together in (successes, unknown):
        for _, batch in groupby(together, key=lambda end: end.message.worker):
            yield list(batch)
