"""The messages that this process has claimed and not yet ended."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import psycopg

from django_pgqueue import functions
from django_pgqueue.consumer.errors import BUSY_ERRORS, first_line, is_of_the_connection
from django_pgqueue.consumer.hold import Hold
from django_pgqueue.consumer.parts import NOT_DUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from django_pgqueue.consumer.background import Connect
    from django_pgqueue.consumer.parts import Parts
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import Connection, Received
    from django_pgqueue.worker.run.progress import SharedReports
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

ATTEND_EVERY_SECONDS = 0.5
LEAVE_SECONDS = 2.0
"""How long a process that stops gives up what has not ended."""
LATE = 2 / 3
"""The part of a lock's time after which the process's thread renews it."""
AGAIN_SECONDS = 0.5
"""How soon to try again for a message whose row another session has locked, or that the heartbeat did not find."""


@dataclass(slots=True)
class HeldMessage:
    message: Received
    claimed: float
    locked: float
    """When the lock was last renewed, by the monotonic clock."""
    missing: bool = False
    """The last heartbeat did not find it: it has just ended, or it is lost."""
    lost: bool = False


class Held:
    """The process's thread adds and forgets messages, and looks after them in each turn.  The thread of the heartbeats
    reads.
    """

    def __init__(self, settings: WorkerSettings, session: Session, parts: Parts) -> None:
        self.settings = settings
        self.session = session
        self.parts = parts
        self.next_attention = 0.0
        self._held: dict[int, HeldMessage] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldMessage]:
        return iter(list(self._held.values()))

    def add(self, messages: Iterable[Received], *, now: float) -> list[Received]:
        """Returns the messages that have to be begun.  If a crash of the server has undone a claim, this process may
        claim the same attempt again: the message has its lock back, and goes on.

        A message with the same id may be another one: a server that took over without the latest messages gives their
        ids again.
        """
        new = []
        for message in messages:
            held = self._held.get(message.id)
            if held is not None and _are_the_same(held.message, message):
                held.message.worker = message.worker
                held.locked, held.missing, held.lost = now, False, False
                continue
            self._held[message.id] = HeldMessage(message, now, now)
            new.append(message)
        return new

    def forget(self, message: Received) -> bool:
        """Returns whether this attempt was held: a lost one that ends late must not be taken for the next attempt,
        which this process may hold too.
        """
        held = self._held.get(message.id)
        if held is None or held.message is not message:
            return False
        del self._held[message.id]
        return True

    def look_after(self, stand_in: Callable[[Session], None], cancel: Callable[[set[int]], None]) -> None:
        """Now and then calls ``stand_in``, of the heartbeats, and ``cancel`` with the ids of held messages that have to
        stop.
        """
        self.parts.do("attend", lambda: self._look_after(stand_in, cancel))

    def attention_is_due_at(self) -> float:
        return self.parts.due_at("attend", self.next_attention) if self._held else float("inf")

    def _look_after(self, stand_in: Callable[[Session], None], cancel: Callable[[set[int]], None]) -> object:
        now = time.monotonic()
        if not self._held or now < self.next_attention:
            return NOT_DUE
        self.next_attention = now + ATTEND_EVERY_SECONDS
        stand_in(self.session)
        if asked := self._asked_to_stop(now):
            cancel(asked)
        return None

    def _asked_to_stop(self, now: float) -> set[int]:
        """Returns the ids of messages with a request to cancel them.  A message that was only just claimed is not worth
        the question.
        """
        old = [held.message for held in self if now - held.claimed > ATTEND_EVERY_SECONDS]
        asked: set[int] = set()
        for worker, messages in groupby(old, key=lambda message: message.worker):
            ids = [message.id for message in messages]
            asked |= functions.message_cancellations(self.session.statements, ids, worker=worker)
        return asked

    def abandon(self, *, not_begun: set[int]) -> None:
        """Gives up what is left, so that others take it over at once.  ``not_begun``: ids of messages that could not be
        given back together.
        """
        if self.session.is_closed:  # the locks run out; an error here would take the place of the one that closed it
            return
        leave_by = time.monotonic() + LEAVE_SECONDS
        messages = [held.message for held in self]
        kept = self._give_up([m for m in messages if m.id not in not_begun], functions.message_abandon, leave_by)
        kept = self._give_up(kept, _unlock, leave_by)
        unstarted = [message for message in messages if message.id in not_begun]
        left = self._give_up(unstarted, functions.message_release, leave_by)
        left_ids = {message.id for message in left}
        for how, ids in (("up", {message.id for message in kept}), ("back", left_ids)):
            if ids:
                logger.warning("not given %s count=%s ids=%s: their locks run out", how, len(ids), sorted(ids)[:10])
        for message in unstarted:
            if message.id not in left_ids:
                self.forget(message)

    def _give_up(self, messages: list[Received], end: Callable[..., object], leave_by: float) -> list[Received]:
        """Returns those for which ``end`` was not possible: the transaction of a job may hold its row, or a trigger
        refuse.  The others do not wait for it, and a connection that is slow has time for few statements.
        """
        not_possible = []
        for worker, group in groupby(messages, key=lambda message: message.worker):
            parts = [list(group)]
            while parts:
                part = parts.pop()
                try:
                    end(self.session.statements, part, worker=worker)
                except psycopg.Error as error:
                    if is_of_the_connection(self.session.connection, error):
                        raise
                    if len(part) > 1 and time.monotonic() < leave_by:
                        parts += [part[len(part) // 2 :], part[: len(part) // 2]]
                        continue
                    if len(part) == 1 and not isinstance(error, BUSY_ERRORS):
                        logger.warning("not given up id=%s: %s", part[0].id, first_line(error))
                    not_possible += part
        return not_possible

    def tell_abandoned(self, *, not_begun: set[int], unrecorded: set[int]) -> None:
        """Logs what is left and has begun.  ``unrecorded``: ids of messages whose end could not be recorded."""
        for message in [held.message for held in self if held.message.id not in not_begun]:
            why = (
                "its end could not be recorded"
                if message.id in unrecorded
                else "it did not end within the grace period"
            )
            logger.error("abandoned id=%s task=%s attempt=%s: %s", message.id, message.task, message.attempt, why)


_unlock = partial(functions.message_heartbeat, lock_ms=0)


class Heartbeats:
    """Renews the locks of held messages when a third of their time has passed, in the thread of a ``Background``.

    Where that thread is late, because it gets no connection or hangs in its own, the process's thread renews them.
    """

    name = "the heartbeat"
    max_again_seconds = 2.0  # meanwhile the locks run out

    def __init__(self, settings: WorkerSettings, held: Held) -> None:
        self.settings = settings
        self.held = held
        self.next_at = 0.0
        self._hold = Hold()
        """This session too shows that the worker lives, where the process's thread has lost its own."""
        self._told_of = 0.0
        """Since when the other thread was busy that the log has called hanging."""

    def due_at(self) -> float:
        return self.next_at if len(self.held) else float("inf")

    def do(self, connect: Connect) -> None:
        now, third = time.monotonic(), self.settings.lock_seconds / 3
        self.next_at = now + third / 2
        for worker, group in self._older_than(third, now):
            session = connect()
            try:
                self._hold.take(session, worker)
                ours = self._beat(session.statements, group, worker)
            except BUSY_ERRORS:
                self.next_at = min(self.next_at, now + AGAIN_SECONDS)
                self._renew_free(session, group, worker, now)
            else:
                self._renewed(group, ours, now)

    def stand_in(self, session: Session, *, busy_since: float) -> None:
        """Called by the process's thread, which must not wait, with its own session.  A round of the other thread
        begins at half of the locks' time at the latest.

        ``busy_since``: when the other thread began what it does now.
        """
        now = time.monotonic()
        late = self._older_than(self.settings.lock_seconds * LATE, now)
        if late and busy_since != self._told_of and now - busy_since > self.settings.lock_seconds * (LATE - 1 / 2):
            self._told_of = busy_since
            logger.warning(
                "the heartbeat hangs worker=%s: its connection has not answered for %.0f seconds, and another one "
                "renews the locks; no progress of jobs is written meanwhile",
                session.consumer, now - busy_since,
            )  # fmt: skip
        for worker, group in late:
            self._renew_free(session, group, worker, now)

    def _older_than(self, seconds: float, now: float) -> list[tuple[str, list[HeldMessage]]]:
        """Returns the messages to renew, by the name under which they were claimed."""
        beating = [held for held in self.held if not held.lost and not held.message.kept]
        old = [held for held in beating if held.missing or now - held.locked > seconds]
        return [(worker, list(group)) for worker, group in groupby(old, key=lambda held: held.message.worker)]

    def _renew_free(self, session: Session, old: list[HeldMessage], worker: str, now: float) -> None:
        """Renews the locks of rows that no other session has locked, without a wait: however many rows are locked, the
        others keep their locks.
        """
        try:
            with session.transaction():
                locked = functions.message_locked(session.statements, [held.message.id for held in old])
                free = [held for held in old if held.message.id not in locked]
                ours = self._beat(session.statements, free, worker)
        except BUSY_ERRORS:  # the table is locked
            return
        self._renewed(free, ours, now)

    def _beat(self, connection: Connection, old: list[HeldMessage], worker: str) -> set[int]:
        messages = [held.message for held in old]
        if not messages:
            return set()
        return functions.message_heartbeat(connection, messages, worker=worker, lock_ms=self.settings.lock_ms)

    def _renewed(self, old: list[HeldMessage], ours: set[int], now: float) -> None:
        for held in old:
            if held.message.id in ours:
                held.locked, held.missing = now, False
            elif not held.missing:  # the process's thread may just have recorded its end
                held.missing = True
                self.next_at = min(self.next_at, now + AGAIN_SECONDS)
            else:
                held.lost = True
                logger.warning(
                    "lost id=%s task=%s attempt=%s: its lock ran out, and another worker took it over while it ran "
                    "here",
                    held.message.id, held.message.task, held.message.attempt,
                )  # fmt: skip


class ProgressReports:
    """Writes the progress that running tasks report.  Runs in the thread of a ``Background``."""

    name = "progress"
    max_again_seconds = 60.0

    def __init__(self, reports: SharedReports) -> None:
        self.reports = reports
        self.next_at = 0.0

    def due_at(self) -> float:
        return self.next_at if self.reports.has_progress() else float("inf")

    def do(self, connect: Connect) -> None:
        self.reports.write(connect().statements)
        self.next_at = time.monotonic() + ATTEND_EVERY_SECONDS


def _are_the_same(held: Received, claimed: Received) -> bool:
    return (held.attempt, held.created_at, held.task, held.content) == (
        claimed.attempt, claimed.created_at, claimed.task, claimed.content,
    )  # fmt: skip
