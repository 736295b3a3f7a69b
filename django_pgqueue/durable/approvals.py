"""Decisions of people, for the admin and for pages of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from django.core.exceptions import PermissionDenied
from django.db import transaction

from django_pgqueue import functions
from django_pgqueue.backend.lookup import connected
from django_pgqueue.conf import APP_LABEL
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.values import names
from django_pgqueue.values.redaction import quote

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult

MAX_COMMENT_BYTES = 10_000
"""As in pgqueue_approval_decide."""
RUN = f"{APP_LABEL}.run_message"
"""The permission that decides where an approval names none."""


class Person(Protocol):
    """The user who decides, as far as ``decide`` needs it."""

    def has_perm(self, perm: str, obj: Any = None) -> bool: ...
    def get_username(self) -> Any: ...


def decide(
    message: AnyTaskResult | str | int,
    name: str,
    *,
    approved: bool,
    user: Person,
    comment: str = "",
    database: str | None = None,
) -> str:
    """Decides an approval for which a durable task waits, given its result or its id, and records who did it.

    Returns "decided"; or, with nothing changed: "already", if there is a decision; "ended", if the job has ended or was
    asked to stop; "unknown", if it has not asked for this approval.  Raises PermissionDenied for a user without the
    permission that the approval asks for, and InvalidMessage if ``approved`` is no bool, or for a comment of more than
    10,000 bytes, or one that PostgreSQL cannot store.  ``database``: by default that of the result.

    >>> decide(result, "ship-abroad", approved=True, user=request.user)  # doctest: +SKIP
    """
    from django_pgqueue.backend import results  # noqa: PLC0415 -- imports models: not before the apps are ready

    given = results.id_of(message)
    message_id = results.message_id_of(given)
    if message_id is None:
        words = f"{quote(given)} is not the id of a message."
        raise InvalidMessage(words)
    names.name_of("approval", name)
    decision: Any = approved  # a view may pass what a form has sent
    if type(decision) is not bool:
        words = f"approved must be True or False, not {quote(decision)}."
        raise InvalidMessage(words)
    if not names.is_text(comment, max_bytes=MAX_COMMENT_BYTES):
        words = (
            f"The comment {quote(comment)} cannot be stored: it may have {MAX_COMMENT_BYTES:,} bytes in UTF-8, without "
            "NUL and lone surrogates."
        )
        raise InvalidMessage(words)
    with connected(database, message) as connection, transaction.atomic(using=connection.alias):
        _refuse_others(connection, message_id, name, user)
        status = functions.approval_decide(
            connection, message_id, name, approved=approved, by=str(user.get_username()), comment=comment or None
        )
        # The job may have asked since the first look, which found no permission.
        _refuse_others(connection, message_id, name, user)
    return status


def _refuse_others(connection: Any, message_id: int, name: str, user: Person) -> None:
    permission = functions.approval_permission(connection, message_id, name)
    if not user.has_perm(permission or RUN):
        words = f"{user.get_username()} may not decide {name!r} of message {message_id}."
        raise PermissionDenied(words)
