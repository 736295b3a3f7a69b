"""Lets other threads and signal handlers end the consumer's wait."""

from __future__ import annotations

import contextlib
import os
import select
import threading


class Wakeup:
    """A pipe that ends the wait.  Any thread and any signal handler may call ``wake``; the consumer's thread calls the
    rest.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
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
                os.write(self._write, b"!")

    def wait(self, seconds: float, *files: int) -> set[int]:
        """Waits until ``wake``, or until one of ``files`` can be read, and returns those."""
        readable, _, _ = select.select([self._read, *files], [], [], max(0.0, seconds))
        self.is_waiting = False
        if self._read in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        return set(readable) - {self._read}

    def pause(self, seconds: float) -> None:
        """Lets the other threads run; ``wake`` does not end it.  Not time.sleep, which fails where libfaketime moves
        the clock.
        """
        select.select([], [], [], seconds)

    def close(self) -> None:
        # Not between the two lines of wake(): the number of a closed file may soon be that of another one.
        with self._closing:
            self._closed = True
            os.close(self._read)
            os.close(self._write)
