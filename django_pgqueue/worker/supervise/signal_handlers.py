"""Handlers of signals, for a time."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


HANG_UP = getattr(signal, "SIGHUP", None)
"""The terminal is gone.  Both the kernel and the shell may say so, and who ends a login sends SIGTERM, too."""


class Requests:
    """The signals that ask a program to stop."""

    def __init__(self) -> None:
        self._hung_up = False

    def is_another(self, number: int) -> bool:
        """Whether a signal is a request of its own.  SIGHUP is one with the signals before and after it."""
        hung_up, self._hung_up = self._hung_up, number == HANG_UP
        return not (hung_up or self._hung_up)


@contextmanager
def handling(numbers: Iterable[int], handler: Callable[[int, Any], object] | signal.Handlers) -> Iterator[None]:
    """Afterwards the signals do what they did before.  A process that nohup has started goes on without a terminal.

    Whoever starts a process may have blocked signals, and they stay blocked in the new one: it could not be stopped.
    """
    handled = [number for number in numbers if number != HANG_UP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in handled}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, handled) if hasattr(signal, "pthread_sigmask") else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, previous in before.items():
            # None: it was not set in Python, which cannot bring it back.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


@contextmanager
def blocked(numbers: Iterable[int]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
