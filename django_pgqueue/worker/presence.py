"""The worker's row in pgqueue_worker: that it is alive, and whether it sleeps."""

from __future__ import annotations

import os
import secrets
import socket
import time
from typing import TYPE_CHECKING

from django_pgqueue import functions

if TYPE_CHECKING:
    from django_pgqueue.functions import Connection
    from django_pgqueue.worker.settings import WorkerSettings

SEEN_EVERY_SECONDS = 4.0
ROOM_AFTER_SECONDS = 0.2
"""Who has had room for so long says so: what changes more often is not worth a row."""


class Presence:
    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.hostname = socket.gethostname()
        # Unique for each start: a server crash may undo a claim and hand the same attempt out again.
        self.id = f"{self.hostname[:30]}-{os.getpid()}-{secrets.token_hex(4)}"
        self.next_seen = 0.0
        self.has_room = False
        """What the row says: who enqueues wakes nobody where somebody who is awake has room."""
        self._room_since: float | None = None

    def news_of_room(self, *, has_room: bool, now: float) -> bool:
        """Whether the row has to change."""
        if not has_room:
            self._room_since = None
            return self.has_room
        self._room_since = now if self._room_since is None else self._room_since
        return not self.has_room and now - self._room_since >= ROOM_AFTER_SECONDS

    def be_seen(self, connection: Connection, *, asleep: bool, has_room: bool = False) -> int:
        """Answers how many workers there are."""
        self.next_seen = time.monotonic() + SEEN_EVERY_SECONDS
        workers = functions.worker_seen(
            connection,
            worker=self.id,
            queues=self.settings.queues,
            exclude_queues=self.settings.exclude_queues,
            hostname=self.hostname,
            pid=os.getpid(),
            slots=self.settings.threads,
            asleep_ms=int(2.5 * SEEN_EVERY_SECONDS * 1000) if asleep else None,
            has_room=has_room,
        )
        self.has_room = has_room
        return workers

    def leave(self, connection: Connection) -> None:
        functions.worker_gone(connection, self.id)
