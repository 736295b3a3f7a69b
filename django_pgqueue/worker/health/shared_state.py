"""Shared memory with a place for each process, whose numbers are still there when it is gone."""

from __future__ import annotations

import json
import mmap
import struct
from dataclasses import dataclass
from typing import Any

from django_pgqueue.worker.settings import MAX_RETIRING

PLACE_BYTES = 1 << 20
"""The size of a place.  Memory that no process has written to takes none."""
BY_SUPERVISOR = struct.Struct("<qd?")  # pid, started, retiring
BY_PROCESS = struct.Struct("<ddq??dq")  # turned, looked, running, connected, stopping, blocked_seconds, died
PAGE = struct.Struct("<qq")  # number of the newest text, and its length
OF_PROCESS_AT = 64
PAGES_AT = 128
TEXTS_AT = 256
TEXT_BYTES = (PLACE_BYTES - TEXTS_AT) // 2
OF_ALL = struct.Struct("<dq?qq")  # the supervisor's turn, its pid, whether it stops, crashed, recycled


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """The state of one process.  Times are those of the monotonic clock, which all processes share; 0: not yet."""

    pid: int
    started: float
    turned: float
    """When its last turn began."""
    looked: float
    """When it last asked for messages."""
    running: int
    connected: bool
    stopping: bool
    blocked_seconds: float
    """For how long its event loop has made no turn while coroutines run."""
    died: int
    """Threads and event loops of slots that have died."""
    retiring: bool
    """Another process has taken its place."""


NOBODY = ProcessReport(
    pid=0, started=0.0, turned=0.0, looked=0.0, running=0, connected=False, stopping=False, retiring=False,
    blocked_seconds=0.0, died=0,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidBySupervisor:
    turned: float
    pid: int
    stopping: bool
    crashed: int
    recycled: int


class SharedState:
    """The board.  It is made before the processes are, with room for those that retire."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        """How many processes there should be, without those that retire."""
        places = processes * (1 + MAX_RETIRING)
        self.places = [ProcessState(self, number) for number in range(places)]
        self.memory = mmap.mmap(-1, PLACE_BYTES * (places + 1))
        """Anonymous, and shared with every process that is forked."""

    def supervise(self, *, turned: float, pid: int, stopping: bool, crashed: int, recycled: int) -> None:
        OF_ALL.pack_into(self.memory, 0, turned, pid, stopping, crashed, recycled)

    @property
    def supervisor(self) -> SaidBySupervisor:
        turned, pid, stopping, crashed, recycled = OF_ALL.unpack_from(self.memory, 0)
        return SaidBySupervisor(turned=turned, pid=pid, stopping=stopping, crashed=crashed, recycled=recycled)

    @property
    def reports(self) -> list[ProcessReport]:
        """The state of each process, and ``NOBODY`` for each one that is missing."""
        found = [report for place in self.places if (report := place.report).pid]
        there = sum(not report.retiring for report in found)
        return [*found, *[NOBODY] * (self.processes - there)]


class ProcessState:
    """A place on the board, for one process and for those that come after it."""

    def __init__(self, board: SharedState, number: int) -> None:
        self.board = board
        self.at = PLACE_BYTES * (number + 1)

    # Written by the supervisor

    def begin(self, *, pid: int, now: float) -> None:
        BY_SUPERVISOR.pack_into(self.board.memory, self.at, pid, now, False)

    def retire(self) -> None:
        pid, started, _ = BY_SUPERVISOR.unpack_from(self.board.memory, self.at)
        BY_SUPERVISOR.pack_into(self.board.memory, self.at, pid, started, True)

    def clear(self) -> None:
        """Marks the place as free.  What was counted stays."""
        self.begin(pid=0, now=0.0)
        self.say(turned=0.0, looked=0.0, running=0, connected=False, stopping=False)

    # Written by the process

    def say(
        self,
        *,
        turned: float,
        looked: float,
        running: int,
        connected: bool,
        stopping: bool,
        blocked_seconds: float = 0.0,
        died: int = 0,
    ) -> None:
        BY_PROCESS.pack_into(
            self.board.memory, self.at + OF_PROCESS_AT,
            turned, looked, running, connected, stopping, blocked_seconds, died,
        )  # fmt: skip

    def write(self, numbers: dict[str, Any]) -> bool:
        """Writes the numbers beside the text that is there: a reader finds a whole text, even if this process dies
        meanwhile.  Returns False if there is no room for so much.
        """
        text = json.dumps(numbers, separators=(",", ":")).encode()
        if len(text) > TEXT_BYTES:
            return False
        newest, _ = PAGE.unpack_from(self.board.memory, self.at + PAGES_AT)
        at = self._text_at(newest + 1)
        self.board.memory[at : at + len(text)] = text
        PAGE.pack_into(self.board.memory, self.at + PAGES_AT, newest + 1, len(text))
        return True

    # Read by others

    @property
    def report(self) -> ProcessReport:
        pid, started, retiring = BY_SUPERVISOR.unpack_from(self.board.memory, self.at)
        turned, looked, running, connected, stopping, blocked_seconds, died = BY_PROCESS.unpack_from(
            self.board.memory, self.at + OF_PROCESS_AT
        )
        return ProcessReport(
            pid=pid, started=started, turned=turned, looked=looked, running=running, connected=connected,
            stopping=stopping, blocked_seconds=blocked_seconds, died=died, retiring=retiring,
        )  # fmt: skip

    def read(self) -> dict[str, Any]:
        """Returns the numbers that were written last."""
        for _ in range(100):  # two more writes have overwritten this text: then there is a newer one
            newest, length = before = PAGE.unpack_from(self.board.memory, self.at + PAGES_AT)
            at = self._text_at(newest)
            text = bytes(self.board.memory[at : at + length])
            if PAGE.unpack_from(self.board.memory, self.at + PAGES_AT) == before:
                break
        return json.loads(text) if text else {}

    def _text_at(self, number: int) -> int:
        return self.at + TEXTS_AT + TEXT_BYTES * (number % 2)
