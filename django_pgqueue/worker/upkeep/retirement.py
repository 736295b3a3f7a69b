"""Lets a process make room for a fresh one before its own jobs have ended.

A retiring process claims nothing more.  What it has begun ends without a limit, because only the worker has decided to
replace the process, and the supervisor starts the next one beside it at once.
"""

from __future__ import annotations

import mmap
import os
import struct

from django_pgqueue.worker.settings import MAX_RETIRING

COUNT = struct.Struct("<q")
PID = struct.Struct("<q")


class Retirement:
    """Memory of one place.  The supervisor makes it; in each process of the place the process's thread calls it, to
    retire.
    """

    def __init__(self, news: int) -> None:
        """``news``: the writing end of the pipe on which processes report that they retire."""
        self.news = news
        self._memory = mmap.mmap(-1, COUNT.size)

    # Called by the supervisor

    def set_retiring(self, count: int) -> None:
        COUNT.pack_into(self._memory, 0, count)

    # Called by the process that the place belongs to: no other one adds to the count

    def is_possible(self) -> bool:
        [count] = COUNT.unpack_from(self._memory, 0)
        return bool(count < MAX_RETIRING)

    def begin(self) -> bool:
        """Reports to the supervisor.  Returns False if that is not possible now."""
        try:
            return os.write(self.news, PID.pack(os.getpid())) == PID.size
        except BlockingIOError:  # the pipe is full: the supervisor has not read it for long
            return False


def retiring_pids(news: int) -> list[int]:
    """Returns the pids of processes that retire.  ``news``: the reading end, which does not block."""
    try:
        received = os.read(news, 512 * PID.size)  # a write of a few bytes is never cut
    except BlockingIOError:
        return []
    return [pid for [pid] in PID.iter_unpack(received)]
