"""The queues that living workers serve."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db.models import Q

from django_pgqueue.models.tables import Message, Worker
from django_pgqueue.values.times import in_utc, to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SILENT_AFTER = dt.timedelta(minutes=1)
"""A worker sends a heartbeat every few seconds.  Without one for this long it does not count as alive, unless it has
announced a longer silence."""
MAX_WORKERS = 1_000


def is_alive(now: dt.datetime) -> Q:
    """Returns the condition for workers that are alive, as far as their rows tell."""
    return Q(seen_at__gt=in_utc(now) - SILENT_AFTER) | Q(silent_until__gt=to_epoch_ms(now))


def is_silent(seen_at: dt.datetime, silent_until: dt.datetime | None, now: dt.datetime) -> bool:
    """Whether a worker has been silent for longer than it may be."""
    rests = silent_until is not None and to_epoch_ms(silent_until) > to_epoch_ms(now)
    return silence(seen_at, now) >= SILENT_AFTER and not rests


def silence(seen_at: dt.datetime, now: dt.datetime) -> dt.timedelta:
    """Returns for how long a worker has been silent.  A naive time may be in an hour that the clock shows twice."""
    return in_utc(now) - in_utc(seen_at)


@dataclass(frozen=True, slots=True)
class Service:
    """The workers that were alive at a moment, and neither paused nor stopping.

    Each is (queues or None for all, excluded queues).
    """

    workers: Sequence[tuple[Collection[str] | None, Collection[str]]]

    @classmethod
    def at(cls, now: dt.datetime, *, using: str) -> Service:
        alive = Worker.objects.using(using).filter(is_alive(now), tasks=True)
        alive = alive.filter(ordered__isnull=True)
        return cls(list(alive.values_list("queues", "exclude_queues")[:MAX_WORKERS]))

    def lacks(self, message: Message) -> bool:
        """Whether no worker would take the message.  Raw messages have their own consumers, which do not register."""
        return message.task is not None and not self.serves(message.queue)

    def serves(self, queue: str) -> bool:
        return any((queues is None or queue in queues) and queue not in excluded for queues, excluded in self.workers)
