"""How a process makes room for a fresh one before its own jobs have ended.

A retiring process claims nothing more.  What it has begun ends without a limit, because only the worker has decided
that it goes, and the supervisor starts the next process beside it at once.
"""

from __future__ import annotations

import mmap
import os
import struct

from django_pgqueue.worker.settings import MAX_RETIRING

COUNT = struct.Struct("<q")
PID = struct.Struct("<q")


class Retirement:
    """Of one place.  The supervisor makes it; the processes of the place inherit it."""

    def __init__(self, news: int) -> None:
        """``news``: the writing end of the pipe on which the supervisor hears who retires."""
        self.news = news
        self._memory = mmap.mmap(-1, COUNT.size)

    # By the supervisor

    def set_retiring(self, count: int) -> None:
        COUNT.pack_into(self._memory, 0, count)

    # By the process that the place belongs to: nobody else adds to the count

    def is_possible(self) -> bool:
        [count] = COUNT.unpack_from(self._memory, 0)
        return bool(count < MAX_RETIRING)

    def begin(self) -> bool:
        """Tells the supervisor.  False: it cannot be told now."""
        try:
            return os.write(self.news, PID.pack(os.getpid())) == PID.size
        except BlockingIOError:  # the pipe is full: the supervisor has not come round for long
            return False


def retiring_pids(news: int) -> list[int]:
    """The processes that have said that they retire.  ``news``: the reading end, which does not block."""
    try:
        told = os.read(news, 512 * PID.size)  # writes of a few bytes are whole
    except BlockingIOError:
        return []
    return [pid for [pid] in PID.iter_unpack(told)]
