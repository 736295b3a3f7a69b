"""The attempts that a worker process has begun, in memory that it shares with its supervisor, and that outlives it."""

from __future__ import annotations

import contextlib
import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.functions import Received

WORKER = struct.Struct("200p")
LEFT_AT, WANTS_QUARANTINE_AT, IDLE_AT, MAY_LEAVE_AT, REPORTED_AT, MARKS_AT = 200, 201, 202, 203, 208, 256
REPORTED = struct.Struct("@q")
ATTEMPT = struct.Struct("@qi?")  # message id, attempt, whether it runs
ATTEMPT_BYTES = 16
MAX_ATTEMPTS = 64
"""Attempts in each mark.  The last one may run; those before it have ended, and may not be recorded yet."""
MARK_BYTES = MAX_ATTEMPTS * ATTEMPT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The attempts of a process that did not leave in order."""

    number: int
    worker: str
    ids: list[int]
    attempts: list[int]
    running: list[bool]
    """Whether each of them ran when the process died: a running one may be the cause."""


class Marks:
    """Memory of one process, made before it is forked.  It has a mark for each thread and each coroutine.

    The slots write the marks, and the process's thread writes the rest.  The supervisor reads the marks when the
    process is gone.
    """

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, MARKS_AT + 2 * slots * MARK_BYTES)
        self._marks = [Mark(self._memory, MARKS_AT + number * MARK_BYTES) for number in range(2 * slots)]
        self._free = list(reversed(self._marks))

    # The process

    @contextlib.contextmanager
    def mark(self) -> Iterator[Mark]:
        """Lends a mark to one slot.  A thread that goes on after its time keeps its mark, and so there may be none
        left: then the supervisor does not learn what begins there.
        """
        try:
            mark = self._free.pop()
        except IndexError:
            yield Mark(bytearray(MARK_BYTES), 0)
            return
        try:
            yield mark
        finally:
            self._free.append(mark)

    def sign_on(self, worker: str) -> None:
        WORKER.pack_into(self._memory, 0, worker.encode())

    def sign_off(self) -> None:
        """Notes that everything that the process held was recorded or given back."""
        WORKER.pack_into(self._memory, 0, b"")

    def leave(self) -> None:
        self._memory[LEFT_AT] = True

    def be_idle(self, idle: bool) -> None:
        """Tells the supervisor whether the process would leave, if the others would too."""
        self._memory[IDLE_AT] = idle

    @property
    def may_leave(self) -> bool:
        """Whether all processes are idle."""
        return bool(self._memory[MAY_LEAVE_AT])

    def want_quarantine(self) -> None:
        """Asks the supervisor for a process, because quarantined messages are due."""
        self._memory[WANTS_QUARANTINE_AT] = True

    def reported(self, death: Death) -> None:
        REPORTED.pack_into(self._memory, REPORTED_AT, death.number)

    # The supervisor

    @property
    def has_left(self) -> bool:
        """Whether the process came to its end by itself.  Its exit code may come from a job."""
        return bool(self._memory[LEFT_AT])

    @property
    def is_idle(self) -> bool:
        return bool(self._memory[IDLE_AT])

    def let_leave(self, may_leave: bool) -> None:
        self._memory[MAY_LEAVE_AT] = may_leave

    @property
    def last_reported(self) -> int:
        """The number of the last death that was recorded."""
        [number] = REPORTED.unpack_from(self._memory, REPORTED_AT)
        return int(number)

    def take_wish(self) -> bool:
        wanted = bool(self._memory[WANTS_QUARANTINE_AT])
        self._memory[WANTS_QUARANTINE_AT] = False
        return wanted

    def death(self, number: int) -> Death | None:
        """Returns what the process held when it died; None: nothing."""
        [worker] = WORKER.unpack_from(self._memory, 0)
        if not worker:
            return None
        attempts = [attempt for mark in self._marks for attempt in mark.read()]
        return Death(
            number=number,
            worker=worker.decode(),
            ids=[message_id for message_id, _, _ in attempts],
            attempts=[attempt for _, attempt, _ in attempts],
            running=[running for _, _, running in attempts],
        )

    def close(self) -> None:
        self._memory.close()


class Mark:
    """The attempts of one slot.  Old ones stay until they are written over: pgqueue_worker_died passes over those that
    the worker does not hold any more.
    """

    __slots__ = ("_at", "_first", "_last", "_memory")

    def __init__(self, memory: Any, at: int) -> None:
        self._memory = memory
        self._at = self._first = at
        self._last = at + (MAX_ATTEMPTS - 1) * ATTEMPT_BYTES

    def begin(self, message: Received) -> None:
        ATTEMPT.pack_into(self._memory, self._at, message.id, message.attempt, True)

    def end(self, message: Received) -> None:
        """Notes that the task does not run any more.  The end is not recorded yet."""
        ATTEMPT.pack_into(self._memory, self._at, message.id, message.attempt, False)
        self._at = self._first if self._at == self._last else self._at + ATTEMPT_BYTES

    def read(self) -> list[tuple[int, int, bool]]:
        places = range(self._first, self._last + 1, ATTEMPT_BYTES)
        found = [ATTEMPT.unpack_from(self._memory, at) for at in places]
        return [attempt for attempt in found if attempt[0]]
