"""The messages that this process has claimed and not yet ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue import functions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_pgqueue.functions import Connection, Received
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

ATTEND_EVERY_SECONDS = 0.5


@dataclass(slots=True)
class Held:
    message: Received
    claimed: float
    locked: float
    """When the lock was last set, by the monotonic clock."""
    lost: bool = False


class Holdings:
    def __init__(self, settings: WorkerSettings, worker: str) -> None:
        self.settings = settings
        self.worker = worker
        self.next_heartbeat = self.next_attention = 0.0
        self._held: dict[int, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, messages: Iterable[Received], *, now: float) -> list[Received]:
        """Answers those that have to be begun.  A crash of the server may have undone a claim, and then the same
        attempt is claimed by the same worker again: it has its lock back, and goes on where it is.
        """
        new = []
        for message in messages:
            held = self._held.get(message.id)
            if held is not None and held.message.attempt == message.attempt:
                held.locked, held.lost = now, False
                continue
            self._held[message.id] = Held(message, now, now)
            new.append(message)
        return new

    def forget(self, message: Received) -> bool:
        """A lost attempt that ends late must not be taken for the next one, which may well be ours too: False."""
        held = self._held.get(message.id)
        if held is None or held.message.attempt != message.attempt:
            return False
        del self._held[message.id]
        return True

    def heartbeat_if_due(self, connection: Connection, *, now: float) -> None:
        third = self.settings.lock_seconds / 3
        if now < self.next_heartbeat:
            return
        self.next_heartbeat = now + third / 2
        old = [held for held in self._held.values() if not held.lost and now - held.locked > third]
        if not old:
            return
        ours = functions.message_heartbeat(
            connection, [held.message for held in old], worker=self.worker, lock_ms=self.settings.lock_ms
        )
        for held in old:
            held.locked = now
            if held.message.id not in ours:
                held.lost = True
                logger.warning(
                    "lost id=%s task=%s attempt=%s: its lock ran out and it was taken over while it ran here",
                    held.message.id, held.message.task, held.message.attempt,
                )  # fmt: skip

    def needs_attention(self, *, now: float) -> bool:
        if not self._held or now < self.next_attention:
            return False
        self.next_attention = now + ATTEND_EVERY_SECONDS
        return True

    def asked_to_stop(self, connection: Connection, *, now: float) -> set[int]:
        """The ids of those that somebody wants to be cancelled.  What has only just begun is not worth the question."""
        old = [message_id for message_id, held in self._held.items() if now - held.claimed > ATTEND_EVERY_SECONDS]
        return functions.message_cancellations(connection, old, worker=self.worker) if old else set()

    def abandon(self, connection: Connection) -> None:
        """What did not end within grace: its lock ends now, so that others take it over at once."""
        rest = [held.message for held in self._held.values()]
        if rest:
            functions.message_heartbeat(connection, rest, worker=self.worker, lock_ms=0)
        for message in rest:
            logger.error(
                "abandoned id=%s task=%s attempt=%s: it did not end within grace",
                message.id,
                message.task,
                message.attempt,
            )
