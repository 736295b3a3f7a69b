"""The options of a backend: the only module that reads ``TASKS[alias]["OPTIONS"]``.

Projects set them in ``TASKS[alias]["OPTIONS"]`` in UPPER_CASE.  A system check reports unknown keys.  This module
ignores them, so that a typing error in the settings cannot stop a running site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


APP_LABEL = "django_pgqueue"
"""Label of the app in Django: in permissions, in URLs of the admin and in recorded migrations."""
FORMER_LABEL = "pgqueue"
"""Label of the app before its first release, and label of a stranger's package."""

TASKS_SETTING = 'TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}'
"""What errors about the settings say to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a backend and its workers.

    >>> Options.of({"LOCK_SECONDS": 300}).lock_ms
    300000
    """

    database: str = "default"
    """Alias of the database that holds the queue."""
    max_attempts: int | None = None
    """Attempts of tasks that set no number of their own.  None: an exception fails the job at once."""
    max_content_bytes: int = 1_048_576
    """Largest size of content, headers or result, as JSON in bytes."""
    lock_seconds: float = 60
    """Seconds that a worker holds a message without a heartbeat before another worker takes it over."""
    grace_seconds: float = 25
    """Seconds that a stopping worker waits for its running jobs."""
    history_days: int | None = 30
    """Whole days for which finished attempts are kept.  None: without end."""
    lake_days: int = 7
    """Days for which history that is older than that waits until each lake has it.  0: it does not wait."""
    listen: bool = True
    """Whether idle workers wait for notifications.  False behind a transaction pooler: they poll every second."""
    idle_poll_seconds: float = 1
    """How often a worker with nothing to do looks for messages of which no notification told it."""
    lake: str | Path | None = None
    """Folder or URL in which ``manage.py qpipeline`` keeps the history as Delta tables."""
    sensitive: bool | Sequence[str] = False
    """Names of arguments and keys whose values the admin and the logs hide in every message, or True for all values."""
    metrics_token: str | None = None
    """Token (header Authorization) with which any client may read /metrics.  None: those who may see the overview."""
    unknown_task_seconds: int = 3600
    """Seconds for which a message that no worker knows waits for one that does, before it fails.  0: not at all."""
    traces: bool = False
    """Whether enqueues and jobs make OpenTelemetry spans."""
    version: str | None = None
    """Version of the deploy.  Workers leave jobs that a later version has enqueued to its workers, while such live."""

    @classmethod
    def of(cls, options: Any) -> Options:
        names = cls.names() if isinstance(options, Mapping) else []
        known = {name.lower(): options[name] for name in names if name in options}
        return cls(**known)

    @classmethod
    def names(cls) -> list[str]:
        return [field.name.upper() for field in fields(cls)]

    @property
    def lock_ms(self) -> int:
        return max(1, int(self.lock_seconds * 1000))
