"""Enqueues messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.functions.channel import refusal

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from django_pgqueue.functions.connection import Connection


@dataclass(frozen=True, slots=True)
class Created:
    id: int
    created_at: dt.datetime


# cast(), because Django writes numbers into the statement: -9223372036854775808::bigint is minus a number too large.
CREATE = """
select pgqueue_message_create(%s::jsonb, %s, %s, %s, cast(%s as bigint), %s, %s::jsonb, %s), pgqueue_clock(now())
"""
# Django's cursors have each statement parsed anew: what most messages do not need costs a tenth of an enqueue.
CREATE_LATER = CREATE.replace("cast(%s as bigint)", "pgqueue_now(now()) + %s::bigint")


def message_create(
    connection: Connection,
    content: str,
    *,
    queue: str = "default",
    task: str | None = None,
    priority: int = 0,
    dequeue_at: int | None = None,
    delay_ms: int | None = None,
    channel: str | None = None,
    headers: str | None = None,
    max_attempts: int | None = 5,
) -> Created:
    """Enqueues one message.  ``delay_ms`` counts from the database's clock, which is the only clock there is."""
    with connection.cursor() as cursor:
        statement, due = (
            (CREATE, dequeue_at) if delay_ms is None or dequeue_at is not None else (CREATE_LATER, delay_ms)
        )
        cursor.execute(statement, (content, queue, task, priority, due, channel, headers, max_attempts))
        return _created(connection, cursor.fetchone(), channel)


def message_create_many(connection: Connection, messages: str) -> list[int | None]:
    """Enqueues many messages: ``messages`` is the JSON array that sql/pgqueue_message_create_many.sql describes.
    Answers None for each that its channel refuses.
    """
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_create_many(%s::jsonb)", (messages,))
        return [row[0] for row in cursor.fetchall()]


CREATE_ALIKE = "select pgqueue_message_create_many(%s::jsonb, %s, %s, %s, %s::bigint, %s, %s::jsonb, %s)"


def message_create_alike(
    connection: Connection,
    contents: str,
    *,
    queue: str,
    task: str | None = None,
    priority: int = 0,
    dequeue_at: int | None = None,
    channel: str | None = None,
    headers: str | None = None,
    max_attempts: int | None = 5,
) -> list[int | None]:
    """Enqueues a message for each content of a JSON array: many that differ in nothing else."""
    with connection.cursor() as cursor:
        cursor.execute(CREATE_ALIKE, (contents, queue, task, priority, dequeue_at, channel, headers, max_attempts))
        return [row[0] for row in cursor.fetchall()]


CREATE_AFTER = """
select pgqueue_message_create_after(
    %s::bigint[], %s::jsonb, %s, %s, %s, coalesce(%s::bigint, pgqueue_now(now()) + %s::bigint), %s, %s::jsonb, %s, %s),
    pgqueue_clock(now())
"""


def message_create_after(
    connection: Connection,
    after_ids: Sequence[int],
    content: str,
    *,
    queue: str = "default",
    task: str | None = None,
    priority: int = 0,
    dequeue_at: int | None = None,
    delay_ms: int | None = None,
    channel: str | None = None,
    headers: str | None = None,
    max_attempts: int | None = 5,
    policy: str = "finished",
) -> Created:
    """Enqueues one message that waits until others have ended."""
    what = (queue, task, priority, dequeue_at, delay_ms, channel, headers, max_attempts, policy)
    with connection.cursor() as cursor:
        cursor.execute(CREATE_AFTER, (list(after_ids), content, *what))
        return _created(connection, cursor.fetchone(), channel)


CREATE_UNIQUE = """
select u.p_id, pgqueue_clock(now()), u.p_created from pgqueue_message_create_unique(
    %s, %s::jsonb, %s, %s, %s, coalesce(cast(%s as bigint), pgqueue_now(now()) + %s::bigint), %s, %s::jsonb,
    %s, %s, %s) as u
"""


def message_create_unique(
    connection: Connection,
    unique_key: str,
    content: str,
    *,
    queue: str = "default",
    task: str | None = None,
    priority: int = 0,
    dequeue_at: int | None = None,
    delay_ms: int | None = None,
    channel: str | None = None,
    headers: str | None = None,
    max_attempts: int | None = 5,
    on_conflict: str = "keep",
    until_started: bool = False,
) -> tuple[Created, bool]:
    """Enqueues one message unless another holds its key: the message that now does, and whether it is new."""
    what = (queue, task, priority, dequeue_at, delay_ms, channel, headers, max_attempts)
    with connection.cursor() as cursor:
        cursor.execute(CREATE_UNIQUE, (unique_key, content, *what, on_conflict, until_started))
        *row, created = cursor.fetchone()
        return _created(connection, row, channel), created


def message_lock_keys(connection: Connection, task: str, *, alone: bool) -> None:
    """Before many messages with unique keys are enqueued, ``alone`` with several statements: see the SQL."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_message_lock_keys(%s, %s)", (task, alone))


def _created(connection: Connection, row: Sequence[Any], channel: str | None) -> Created:
    message_id, created_at = row
    if message_id is None:
        raise refusal(connection, channel)
    return Created(message_id, created_at)
