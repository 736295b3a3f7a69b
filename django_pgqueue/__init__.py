"""Background jobs for Django on the PostgreSQL that the project already has."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_pgqueue.backend import Call, enqueue_many
    from django_pgqueue.durable import emit
    from django_pgqueue.exceptions import Retry
    from django_pgqueue.queue import Queue
    from django_pgqueue.routing import Exchange, publish, subscribe
    from django_pgqueue.tasks import Exponential, batch, cron, every, task

__version__ = "0.2.0"
__all__ = [
    "Call",
    "Exchange",
    "Exponential",
    "Queue",
    "Retry",
    "batch",
    "cron",
    "emit",
    "enqueue_many",
    "every",
    "publish",
    "subscribe",
    "task",
]

HOMES = {
    "django_pgqueue.backend": ("Call", "enqueue_many"),
    "django_pgqueue.durable": ("emit",),
    "django_pgqueue.exceptions": ("Retry",),
    "django_pgqueue.queue": ("Queue",),
    "django_pgqueue.routing": ("Exchange", "publish", "subscribe"),
    "django_pgqueue.tasks": ("Exponential", "batch", "cron", "every", "task"),
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is used: Django imports this package before the settings can be read."""
    for module, names in HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
