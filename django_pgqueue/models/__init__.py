"""Django models of the queue's tables."""

from django_pgqueue.models.tables import (
    Arrival,
    Attempt,
    Binding,
    Channel,
    Edit,
    Ended,
    Exchange,
    Lane,
    Message,
    Overview,
    QueueState,
    ReportError,
    ReportHour,
    ReportQueue,
    Schedule,
    Worker,
)

__all__ = [
    "Arrival",
    "Attempt",
    "Binding",
    "Channel",
    "Edit",
    "Ended",
    "Exchange",
    "Lane",
    "Message",
    "Overview",
    "QueueState",
    "ReportError",
    "ReportHour",
    "ReportQueue",
    "Schedule",
    "Worker",
]
