"""The progress that running tasks report, and requests to cancel them.  Slots and the worker's own threads share it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django_pgqueue import functions
from django_pgqueue.consumer.errors import BUSY_ERRORS

if TYPE_CHECKING:
    from django_pgqueue.functions import Connection, Received


class SharedReports:
    """The reports of a worker process.  The slots put progress here, and ``ProgressReports`` writes the last one of
    each message.
    """

    def __init__(self) -> None:
        self._progress: dict[int, tuple[Received, str]] = {}
        self.cancelled: set[int] = set()

    def progress(self, message: Received, progress: str) -> None:
        if not message.kept:
            self._progress[message.id] = (message, progress)

    def is_cancelled(self, message: Received) -> bool:
        return message.id in self.cancelled

    def has_progress(self) -> bool:
        return bool(self._progress)

    def write(self, connection: Connection) -> None:
        """Waits once at most for a lock of another session, because the same thread sends the heartbeats."""
        ids = list(self._progress)  # not until it is empty: a task may report faster than this writes
        with suppress(*BUSY_ERRORS):
            locked = functions.message_locked(connection, ids)
            for message_id in ids:
                if message_id not in locked:
                    self._write(connection, message_id)

    def _write(self, connection: Connection, message_id: int) -> None:
        if (report := self._progress.pop(message_id, None)) is None:
            return  # its message has just ended
        try:
            functions.message_progress(connection, *report)
        except BUSY_ERRORS:
            self._progress.setdefault(message_id, report)  # what the task has reported since then counts
            raise

    def forget(self, message: Received) -> None:
        self._progress.pop(message.id, None)
        self.cancelled.discard(message.id)


class DirectReports:
    """The reports of ``testing.drain``: it writes and asks at once, in the test's own session."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def progress(self, message: Received, progress: str) -> None:
        functions.message_progress(self._session(), message, progress)

    def is_cancelled(self, message: Received) -> bool:
        return bool(functions.message_cancellations(self._session(), [message.id], worker=message.worker))

    def _session(self) -> Connection:
        """Returns the driver's connection in an event loop, where Django's refuses to work.  It may be used: the test
        waits for the task.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.connection  # type: ignore[no-any-return]
        return self.connection.connection  # type: ignore[no-any-return]
