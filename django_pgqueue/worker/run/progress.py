"""What running tasks say, and what is said to them.  Slots and the consumer's thread share it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django_pgqueue import functions
from django_pgqueue.consumer.errors import BUSY_ERRORS

if TYPE_CHECKING:
    from django_pgqueue.functions import Connection, Received


class SharedReports:
    """Of a worker: words wait here until the consumer writes them, the last one of each message only."""

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
        for message_id in list(self._progress):  # not until there is none: a task may speak faster than this writes
            if (said := self._progress.pop(message_id, None)) is None:
                continue  # its message has just ended
            try:
                functions.message_progress(connection, *said)
            except BUSY_ERRORS:  # somebody has locked the row; what the task has said since then counts
                self._progress.setdefault(message_id, said)

    def forget(self, message: Received) -> None:
        self._progress.pop(message.id, None)
        self.cancelled.discard(message.id)


class DirectReports:
    """Of ``testing.drain``: written and asked at once, in the test's own session."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def progress(self, message: Received, progress: str) -> None:
        functions.message_progress(self._session(), message, progress)

    def is_cancelled(self, message: Received) -> bool:
        return bool(functions.message_cancellations(self._session(), [message.id], worker=message.worker))

    def _session(self) -> Connection:
        """In an event loop Django's connection refuses to speak.  The driver's may: the test waits for the task."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.connection  # type: ignore[no-any-return]
        return self.connection.connection  # type: ignore[no-any-return]
