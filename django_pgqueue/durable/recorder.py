"""Records the steps of the slots of one process together: steps that end while a commit runs share the next one."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from django.db import Error, OperationalError
from psycopg.pq import TransactionStatus

from django_pgqueue import functions

if TYPE_CHECKING:
    from django_pgqueue.functions import NewStep

MAX_STEPS = 100
PATIENCE_SECONDS = 1.0
"""A step waits this long for the commit of others.  Then it is recorded alone."""
MAX_CHARACTERS = 4_000_000
"""Of the results that one statement records.  The first is recorded whatever its length."""


class StepRecorder:
    """Records steps in one database: one thread at a time, over its own connection, what has come meanwhile.

    A thread that is alone waits for nobody.  What could not be recorded together with others, each job records alone:
    the result or the connection of one job is no error of another, and no job waits long for the thread of another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Entry] = []
        self._records = False
        """A thread records, or has been told to."""

    def record(self, connection: Any, step: NewStep) -> bool:
        """Returns whether the step was recorded.  False: record it alone, which says why."""
        if not _commits_at_once(connection):
            return False
        entry = _Entry(step)
        with self._lock:
            self._waiting.append(entry)
            entry.leads = not self._records
            self._records = True
        if not entry.leads and not entry.turn.acquire(timeout=PATIENCE_SECONDS) and self._leaves(entry):
            return False
        if entry.leads:
            try:
                self._record(connection)
            finally:
                self._pass_on()
        return entry.is_recorded

    def _record(self, connection: Any) -> None:
        with self._lock:
            entries = self._take()
        try:
            for place in functions.step_record_many(connection, [entry.step for entry in entries]):
                entries[place].is_recorded = True
        except OperationalError:
            raise  # a lost connection, or a statement that was cancelled: the end of this job alone
        except Error:
            if len(entries) == 1:
                raise
        finally:
            for entry in entries[1:]:
                entry.turn.release()

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting:
                following = self._waiting[0]
                following.leads = True
                following.turn.release()
            else:
                self._records = False

    def _leaves(self, entry: _Entry) -> bool:
        """Whether it need not lead.  If it was taken already, its step may be recorded twice, which is the same."""
        with self._lock:
            if entry in self._waiting:
                self._waiting.remove(entry)
            return not entry.leads

    def _take(self) -> list[_Entry]:
        count, characters = 0, 0
        for entry in self._waiting[:MAX_STEPS]:
            characters += len(entry.step.result or "")
            if count and characters > MAX_CHARACTERS:
                break
            count += 1
        taken, self._waiting[:count] = self._waiting[:count], []
        return taken


class _Entry:
    __slots__ = ("is_recorded", "leads", "step", "turn")

    def __init__(self, step: NewStep) -> None:
        self.step = step
        self.is_recorded = False
        self.leads = False
        """Its thread records it, with those behind it."""
        self.turn = threading.Lock()
        """Held until the step was recorded, or its thread leads."""
        self.turn.acquire()


def _commits_at_once(connection: Any) -> bool:
    """Whether no transaction is open, whoever has begun it: a rollback would take the steps of other jobs along."""
    return (
        bool(connection.get_autocommit()) and connection.connection.pgconn.transaction_status == TransactionStatus.IDLE
    )


@cache
def of(database: str) -> StepRecorder:  # noqa: ARG001 -- a recorder for each database
    return StepRecorder()
