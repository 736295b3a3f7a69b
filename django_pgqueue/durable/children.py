"""Children: messages that a durable task enqueues and waits for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.exceptions import ChildFailed, InvalidStep

if TYPE_CHECKING:
    from django_pgqueue.functions import ChildOutcome


@dataclass(frozen=True, slots=True)
class EnqueuedChild:
    """Message that a durable task has enqueued: pass it to ``context.gather``."""

    id: int


def outcome_of(outcome: ChildOutcome, parent_id: int) -> Any:
    """Returns what an ended child has returned, or the ChildFailed of one that did not succeed."""
    if outcome.status == "succeeded":
        return None if outcome.result is None else json.loads(outcome.result)
    if outcome.status == "unknown":
        message = (
            f"The message {outcome.id} is no child of the message {parent_id}: enqueue it by "
            "task.enqueue_in(context, …), or its history was deleted."
        )
        raise InvalidStep(message)
    error = ": ".join(part for part in (outcome.error_class, outcome.error_message) if part)
    return ChildFailed(
        f"The child {outcome.id} ended as {outcome.status}" + (f": {error}" if error else "."),
        message_id=outcome.id,
        status=outcome.status,
        error_class=outcome.error_class,
        error_message=outcome.error_message,
    )
