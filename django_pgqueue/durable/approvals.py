"""Decisions of people, for the admin and for pages of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from django.core.exceptions import PermissionDenied
from django.db import connections

from django_pgqueue import functions
from django_pgqueue.backend.lookup import database_of
from django_pgqueue.conf import APP_LABEL

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult

RUN = f"{APP_LABEL}.run_message"
"""The permission that decides where an approval names none."""


class Person(Protocol):
    """The user who decides, as far as ``decide`` needs it."""

    def has_perm(self, perm: str, obj: Any = None) -> bool: ...
    def get_username(self) -> str: ...


def decide(
    message: AnyTaskResult | int,
    name: str,
    *,
    approved: bool,
    user: Person,
    comment: str = "",
    database: str | None = None,
) -> str:
    """Decides an approval for which a durable task waits, and records who did it.

    Returns "decided"; or, with nothing changed: "already", if there is a decision; "ended", if the job has ended or was
    asked to stop; "unknown", if it has not asked for this approval.  Raises PermissionDenied for a user without the
    permission that the approval asks for.

    >>> decide(result, "ship-abroad", approved=True, user=request.user)  # doctest: +SKIP
    """
    message_id = message if isinstance(message, int) else int(message.id)
    connection = connections[database_of(database)]
    if not user.has_perm(functions.approval_permission(connection, message_id, name) or RUN):
        words = f"{user.get_username()} may not decide {name!r} of message {message_id}."
        raise PermissionDenied(words)
    return functions.approval_decide(
        connection, message_id, name, approved=approved, by=user.get_username(), comment=comment or None
    )
