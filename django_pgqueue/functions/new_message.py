"""What an enqueue says: one value from every door (tasks, bulk, schedules, raw messages, exchanges)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_pgqueue.values.times import When


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The key that a message holds, so that no other message with this key is enqueued."""

    key: str
    on_conflict: str = "keep"
    """What happens to the waiting message that holds the key: keep, replace or debounce."""
    until_started: bool = False
    """Whether the message gives the key up when its first attempt begins."""


@dataclass(frozen=True, slots=True)
class After:
    """The messages that must have ended before this one runs."""

    ids: tuple[int, ...]
    policy: str = "finished"
    """succeeded: the message is cancelled if one of them did not succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message before its enqueue.  Its values have been checked: ``functions.enqueue`` writes them as they are."""

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
    unique: UniqueKey | None = None
    after: After | None = None
