"""The options of a backend: the only way to the settings.

They stand in ``TASKS[alias]["OPTIONS"]`` in UPPER_CASE.  Unknown keys are reported by a system check and ignored here,
so that a typing error in the settings cannot stop a running site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


APP_LABEL = "pgqueue"
"""Of the app in Django: in permissions, in addresses of the admin and in recorded migrations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a backend and its workers behave.

    >>> Options.of({"LOCK_SECONDS": 300}).lock_ms
    300000
    """

    database: str = "default"
    """Alias of the database that holds the queue."""
    max_attempts: int | None = None
    """Attempts of tasks that do not say themselves.  None: an exception fails the job at once."""
    max_content_bytes: int = 1_048_576
    """Largest content, headers or result, as JSON in bytes."""
    lock_seconds: float = 60
    """How long a worker holds a message without a heartbeat before others take it over."""
    grace_seconds: float = 25
    """How long a stopping worker waits for what is running."""
    history_days: int | None = 30
    """Whole days that finished attempts are kept.  None: for ever."""
    listen: bool = True
    """Whether idle workers wait for notifications.  False behind a transaction pooler: they poll every second."""
    lake: str | Path | None = None
    """Folder, or URL, where ``manage.py qpipeline`` keeps the history as Parquet files."""
    sensitive: bool | Sequence[str] = False
    """What is shown of no message, in the admin or in logs: names of arguments and keys, or True for all of it."""
    metrics_token: str | None = None
    """With it in the header Authorization, anybody may read /metrics.  None: those who may see the overview."""
    traces: bool = False
    """Whether enqueues and jobs make spans, with OpenTelemetry."""

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
        return int(self.lock_seconds * 1000)
