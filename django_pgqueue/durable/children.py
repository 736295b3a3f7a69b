"""Children: messages that a durable task enqueues and waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.exceptions import InvalidStep
from django_pgqueue.tasks.outcome import value_of
from django_pgqueue.values.redaction import quote

if TYPE_CHECKING:
    from django_pgqueue.functions import ChildOutcome


@dataclass(frozen=True, slots=True)
class EnqueuedChild:
    """Message that a durable task has enqueued: pass it to ``context.gather``."""

    id: int


def id_of(child: Any) -> int:
    """Returns the id of a child, which is given as what ``enqueue_in`` returned, or as that id.

    >>> id_of(EnqueuedChild(7)), id_of("8")
    (7, 8)
    """
    given = child.id if isinstance(child, EnqueuedChild) else child
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 20:
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < 2**63:
        message = f"{quote(child)} is no child: pass what task.enqueue_in(context, …) returned, or the id of that."
        raise InvalidStep(message)
    return given


def outcome_of(outcome: ChildOutcome, parent_id: int) -> Any:
    """Returns what an ended child has returned, or the ChildFailed of one that did not succeed."""
    if outcome.status == "unknown":
        message = (
            f"The message {outcome.id} is no child of the message {parent_id}: enqueue it by "
            "task.enqueue_in(context, …), or its history was deleted."
        )
        raise InvalidStep(message)
    return value_of(outcome, "the child")
