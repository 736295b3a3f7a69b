"""The queues that living workers serve."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue.models.tables import Message, Worker

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SILENT_AFTER = dt.timedelta(minutes=1)
"""A worker sends a heartbeat every few seconds; without one for this long it does not count as alive."""
MAX_WORKERS = 1_000


@dataclass(frozen=True, slots=True)
class Service:
    """The workers that were alive at a moment, as (queues or None for all, excluded queues)."""

    workers: Sequence[tuple[Collection[str] | None, Collection[str]]]

    @classmethod
    def at(cls, now: dt.datetime, *, using: str) -> Service:
        alive = Worker.objects.using(using).filter(seen_at__gt=now - SILENT_AFTER, tasks=True)
        return cls(list(alive.values_list("queues", "exclude_queues")[:MAX_WORKERS]))

    def lacks(self, message: Message) -> bool:
        """Whether no worker would take the message.  Raw messages have their own consumers, which do not register."""
        return message.task is not None and not self.serves(message.queue)

    def serves(self, queue: str) -> bool:
        return any((queues is None or queue in queues) and queue not in excluded for queues, excluded in self.workers)
