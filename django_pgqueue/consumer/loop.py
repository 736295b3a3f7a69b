"""The loop of a consumer: a worker process, or a listener of raw messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_pgqueue.consumer.errors import CONNECTION_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.consumer.polling import Polling
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.consumer.wakeup import Wakeup

MAX_WAIT_SECONDS = 1.0


class Loop:
    """Does a turn, and waits until something is due or the consumer is woken.  It opens a lost session again.  The
    consumer's thread calls ``turn`` until it leaves.
    """

    def __init__(
        self,
        session: Session,
        polling: Polling,
        wakeup: Wakeup,
        *,
        on_reconnect: Callable[[], None],
        on_back_off: Callable[[float], None] = lambda _: None,
    ) -> None:
        """``on_reconnect`` is called when a lost session is open again.  ``on_back_off`` is called with the seconds for
        which the consumer leaves the database alone, after an error of the connection.
        """
        self.session = session
        self.polling = polling
        self.wakeup = wakeup
        self.on_reconnect = on_reconnect
        self.on_back_off = on_back_off

    def turn(self, do: Callable[[], None], due_at: Callable[[], float]) -> None:
        """``do``: what the consumer does in a turn; the session may be closed.  ``due_at``: when the next turn is due,
        by the monotonic clock.
        """
        try:
            if self.session.reopen_if_due():
                self.on_reconnect()
            do()
        except CONNECTION_ERRORS as error:
            self._back_off(error)
        self._wait(due_at)

    def _wait(self, due_at: Callable[[], float]) -> None:
        # A slot that ends an attempt after this line wakes the consumer; due_at() sees one that ended before.
        self.wakeup.is_waiting = True
        seconds = min(due_at() - time.monotonic(), MAX_WAIT_SECONDS)
        if seconds <= 0:  # no wait: even one of 0 releases the interpreter to the slots, and gets it back late
            self.wakeup.is_waiting = False
            return
        files = [] if self.session.is_closed or not self.polling.asleep else [self.session.connection.fileno()]
        if self.wakeup.wait(seconds, *files):
            self._take_notifications()

    def _take_notifications(self) -> None:
        try:
            self.session.take_notifications()
        except CONNECTION_ERRORS as error:
            self._back_off(error)

    def _back_off(self, error: Exception) -> None:
        """Leaves the database alone for a while.  Messages are still held, if their locks last, and ends are recorded
        later.
        """
        seconds = self.session.failed(error)
        self.polling.pause(seconds, now=time.monotonic())
        self.on_back_off(seconds)
