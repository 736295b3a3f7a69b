"""Enqueues messages."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from django_pgqueue.functions.channel import refusal
from django_pgqueue.values.times import EPOCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.functions.connection import Connection


@dataclass(frozen=True, slots=True)
class Created:
    id: int
    created_at: dt.datetime


# cast(), because Django writes numbers into the statement: -9223372036854775808::bigint is minus a number too large.
PLACES = {
    "queue": "p_queue => %s",
    "task": "p_task => %s",
    "priority": "p_priority => %s",
    "dequeue_at": "p_dequeue_at => cast(%s as bigint)",
    "delay_ms": "p_dequeue_at => pgqueue_now(now()) + %s::bigint",
    "channel": "p_channel => %s",
    "headers": "p_headers => %s::jsonb",
    "max_attempts": "p_max_attempts => %s",
}
# A number is cheaper to read than a time.
CLOCK = "extract(epoch from pgqueue_clock(now()))::double precision"
DEFAULTS = {"queue": "default", "priority": 0, "max_attempts": 5}


@cache
def _create(*given: str) -> str:
    """Django's cursors write the values into the statement, which the server parses anew each time: what a message does
    not need would cost a tenth of its enqueue.
    """
    places = ", ".join(["%s::jsonb", *(PLACES[name] for name in given)])
    return f"select pgqueue_message_create({places}), {CLOCK}"


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
    given = {
        "queue": queue,
        "task": task,
        "priority": priority,
        "dequeue_at": dequeue_at,
        "delay_ms": delay_ms if dequeue_at is None else None,
        "channel": channel,
        "headers": headers,
        "max_attempts": max_attempts,
    }
    given = {name: value for name, value in given.items() if value != DEFAULTS.get(name)}
    with connection.cursor() as cursor:
        cursor.execute(_create(*given), (content, *given.values()))
        message_id, seconds = cursor.fetchone()
    return _created(connection, (message_id, EPOCH + dt.timedelta(seconds=seconds)), channel)


def message_create_many(connection: Connection, messages: str) -> list[int | None]:
    """Enqueues many messages: ``messages`` is the JSON array that pgqueue_message_create_many.sql describes.
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
