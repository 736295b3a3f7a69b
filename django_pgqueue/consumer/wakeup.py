"""Lets other threads and signal handlers end the consumer's wait."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SELECT = 1024


class Wakeup:
    """A pair of sockets that ends the wait.  Any thread and any signal handler may call ``wake``; the consumer's thread
    calls the rest.

    Not a pipe: Windows waits for nothing but sockets.
    """

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._number = self._read.fileno()
        self.is_waiting = False
        """The consumer waits or is about to: then, and only then, it is worth a system call to wake it."""
        self._closed = False
        # Reentrant, for a signal handler that comes between the lines of its own thread.
        self._closing = threading.RLock()

    def wake(self) -> None:
        self.is_waiting = False
        with self._closing:
            if self._closed:  # the consumer has left: a signal, or a late thread, may come after that
                return
            with contextlib.suppress(BlockingIOError):  # the pipe is full: it is awake already
                self._write.send(b"!")

    def wait(self, seconds: float, *files: int) -> set[int]:
        """Waits until ``wake``, or until one of ``files`` can be read, and returns those."""
        found = readable([self._number, *files], max(0.0, seconds))
        self.is_waiting = False
        if self._number in found:
            with contextlib.suppress(BlockingIOError):
                self._read.recv(4096)
        return found - {self._number}

    def pause(self, seconds: float) -> None:
        """Lets the other threads run; ``wake`` does not end it.  Not time.sleep, which fails where libfaketime moves
        the clock.  It waits for a socket to which nobody sends: Windows refuses to wait for none.
        """
        readable([self._write.fileno()], seconds)

    def close(self) -> None:
        # Not between the two lines of wake(): the number of a closed file may soon be that of another one.
        with self._closing:
            self._closed = True
            self._read.close()
            self._write.close()


def readable(files: Sequence[int], seconds: float | None) -> set[int]:
    """Waits until one of ``files`` can be read, and returns those; None: however long that takes.

    select() refuses the numbers from 1024 on, which files get where a process has many open, as one with async jobs.
    poll() takes them, and rounds the time up to a millisecond: much for a pause of 50 microseconds.
    """
    if max(files) < MAX_SELECT or not hasattr(select, "poll"):  # Windows has no poll(), and its select() refuses none
        return set(select.select(files, [], [], seconds)[0])
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {file for file, _ in poll.poll(None if seconds is None else seconds * 1000)}
