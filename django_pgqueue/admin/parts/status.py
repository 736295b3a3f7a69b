"""The status of a message.  It is not stored, but computed from the row and the database's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import F, Q, TextChoices
from django.db.models.lookups import IsNull

from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt
    from typing import Any


class Status(TextChoices):
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    EXPIRED = "expired"


def status_of(dequeue_at: dt.datetime, unlock_at: dt.datetime | None, now: dt.datetime) -> Status:
    now_ms = to_epoch_ms(now)
    if unlock_at is not None:
        return Status.RUNNING if to_epoch_ms(unlock_at) > now_ms else Status.EXPIRED
    return Status.SCHEDULED if to_epoch_ms(dequeue_at) > now_ms else Status.READY


def where(status: Status, now: dt.datetime) -> Q:
    """Returns the condition for a status, in a form that indexes support."""
    match status:
        case Status.SCHEDULED:
            return Q(unlock_at__isnull=True, dequeue_at__gt=to_epoch_ms(now))
        case Status.READY:
            return Q(unlock_at__isnull=True, dequeue_at__lte=to_epoch_ms(now))
        case Status.RUNNING:
            return Q(unlock_at__gt=to_epoch_ms(now))
        case Status.EXPIRED:
            return Q(unlock_at__lte=to_epoch_ms(now))


def order(status: Status) -> tuple[Any, ...]:
    """Orders waiting messages as each queue's workers take them, and running ones by the end of their lock."""
    if status in {Status.SCHEDULED, Status.READY}:
        return LINE
    return ("unlock_at", "id")


# The order of pgqueue_message_scheduled_ix; in pgqueue_message_lane_ix each channel has a line of its own.
LINE = ("queue", IsNull(F("task"), True), "-priority", "dequeue_at", "id")


def waiting_or_held(condition: Q) -> Q:
    """Repeats ``condition`` for each half of the table: so two partial indexes, of one half each, serve it together."""
    return Q(condition, unlock_at__isnull=True) | Q(condition, unlock_at__isnull=False)
