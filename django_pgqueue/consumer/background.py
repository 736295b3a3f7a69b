"""Work beside the consumer, in a thread with a connection of its own: it may wait without harm to the consumer."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

import psycopg

from django_pgqueue.consumer.connection import answer_seconds
from django_pgqueue.consumer.errors import first_line, is_of_no_use
from django_pgqueue.consumer.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger("django_pgqueue.worker")

IDLE_SECONDS = 30.0
"""A connection that was not used for this long is closed."""
MAX_WAIT_SECONDS = 0.5
MIN_AGAIN_SECONDS = 0.5


class Duty(Protocol):
    """Work that is done now and then, in the thread of a ``Background``."""

    name: str
    max_again_seconds: float
    """The longest pause after an error; it doubles with each."""

    def due_at(self) -> float:
        """Returns when the work is due, by the monotonic clock."""

    def do(self, connect: Connect) -> None:
        """Does the work, in bounded steps.  ``connect`` opens the connection, where there is something to do."""


class Connect(Protocol):
    def __call__(self) -> Session: ...


class Background:
    """Runs duties in a thread of its own, which starts when the first one is due.  An error of a duty is logged once,
    and ends nothing.

    The consumer's thread calls ``start_if_due`` in each turn, and ``stop`` and ``join`` at the end.
    """

    def __init__(
        self,
        name: str,
        duties: Sequence[Duty],
        *,
        database: str,
        worker: str,
        pooled: bool,
        row_wait_ms: int,
        answer_seconds: Callable[[], float] = answer_seconds,
    ) -> None:
        self.name = name
        self.duties = duties
        self.session = Session(
            database,
            consumer=worker,
            pooled=pooled,
            row_wait_ms=row_wait_ms,
            answer_seconds=answer_seconds,
        )
        self.problems: dict[str, str] = {}
        """The errors of duties that do not work, by the name of the duty."""
        self.busy_since = float("inf")
        """When the duty began that is being done."""
        self._again: dict[str, tuple[float, float]] = {}
        self._used = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start_if_due(self) -> None:
        """Called by the consumer in each turn: it costs next to nothing."""
        if self._thread is None and not self._stopping.is_set() and self._due_at() <= time.monotonic():
            thread = threading.Thread(target=self._run, name=f"pgqueue-{self.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more threads: it may have some soon
                for duty in self.duties:
                    if self._due(duty) <= time.monotonic():
                        self._failed(duty, error)
            else:
                self._thread = thread

    def due_at(self) -> float:
        """Returns when the consumer has to start the thread."""
        return self._due_at() if self._thread is None else float("inf")

    def stop(self) -> None:
        """The thread ends after the duty that is being done."""
        self._stopping.set()

    def join(self, seconds: float) -> None:
        """Waits for the end of the thread, and then goes on without it."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for duty in self.duties:
                if self._due(duty) <= time.monotonic() and not self._stopping.is_set():
                    self._attempt(duty)
            if time.monotonic() - self._used > IDLE_SECONDS:
                self._close()
            self._stopping.wait(max(0.0, min(MAX_WAIT_SECONDS, self._due_at() - time.monotonic())))
        self._close()

    def _attempt(self, duty: Duty) -> None:
        self.busy_since = time.monotonic()
        try:
            duty.do(self._connected)
        except Exception as error:  # noqa: BLE001
            self._failed(duty, error, None if isinstance(error, (psycopg.Error, OSError)) else error)
            if self._is_open() and is_of_no_use(self.session.connection, error):
                self._close()
        else:
            self._again.pop(duty.name, None)
            self.problems.pop(duty.name, None)
        finally:
            self.busy_since = float("inf")

    def _failed(self, duty: Duty, error: Exception, shown: Exception | None = None) -> None:
        _, seconds = self._again.get(duty.name, (0.0, MIN_AGAIN_SECONDS))
        self._again[duty.name] = (time.monotonic() + seconds, min(duty.max_again_seconds, 2 * seconds))
        if duty.name not in self.problems:
            logger.warning(
                "%s is not possible worker=%s: %s", duty.name, self.session.consumer, first_line(error), exc_info=shown
            )
        self.problems[duty.name] = first_line(error)

    def _connected(self) -> Session:
        if not self._is_open():
            self.session.open()
        self._used = time.monotonic()
        return self.session

    def _is_open(self) -> bool:
        return hasattr(self.session, "connection") and not self.session.is_closed

    def _close(self) -> None:
        if self._is_open():
            self.session.connection.close()

    def _due(self, duty: Duty) -> float:
        again_at, _ = self._again.get(duty.name, (0.0, 0.0))
        return max(duty.due_at(), again_at)

    def _due_at(self) -> float:
        return min((self._due(duty) for duty in self.duties), default=float("inf"))
