"""Arguments of an enqueue: one value for tasks, bulk, schedules, raw messages and exchanges alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_pgqueue.values.times import When


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """Key that a message holds, so that no other message with this key is enqueued."""

    key: str
    on_conflict: str = "keep"
    """Policy for the waiting message that holds the key: keep, replace or debounce."""
    until_started: bool = False
    """Whether the message releases the key when its first attempt begins."""


@dataclass(frozen=True, slots=True)
class After:
    """The messages that must have ended before this one runs."""

    ids: tuple[int, ...]
    policy: str = "finished"
    """finished, or succeeded: then the message is cancelled if one of them did not succeed."""
    results: bool = False
    """Whether their results are kept for this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """Message before its enqueue, with checked values: ``functions.enqueue`` writes them as they are."""

    content: str
    """JSON text."""
    queue: str = "default"
    task: str | None = None
    """None: a raw message."""
    priority: int = 0
    when: When | None = None
    """None: at once."""
    channel: str | None = None
    headers: str | None = None
    """JSON text of an object."""
    max_attempts: int | None = 5
    """None: without limit.  5 is for raw messages: a task always passes its own."""
    max_lost: int | None = None
    """None: the limit of the SQL functions."""
    version: str | None = None
    """The deploy that enqueues it, where its settings name one.  Raw messages have none."""
    unique: UniqueKey | None = None
    after: After | None = None
