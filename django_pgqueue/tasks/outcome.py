"""How a message has ended for which another one has waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_pgqueue.exceptions import ChildFailed
from django_pgqueue.values import content

if TYPE_CHECKING:
    from django_pgqueue.functions import ChildOutcome


def value_of(outcome: ChildOutcome, what: str) -> Any:
    """Returns what the message has returned, or the ChildFailed of one that did not succeed.  ``what``: its name."""
    if outcome.status == "succeeded":
        return None if outcome.result is None else content.read(outcome.result, f"the result of {what} {outcome.id}")
    if outcome.status == "unknown":
        return ChildFailed(f"How {what} {outcome.id} ended is not known: it is not in the history any more.")
    # Not what the error says: of a task with sensitive arguments fewer people may read it than of the one that waits.
    error = f": {outcome.error_class}" if outcome.error_class else "."
    return ChildFailed(
        f"The {what.removeprefix('the ')} {outcome.id} ended as {outcome.status}{error}",
        message_id=outcome.id,
        status=outcome.status,
        error_class=outcome.error_class,
        error_message=outcome.error_message,
    )
