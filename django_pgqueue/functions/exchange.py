"""Exchanges: their bindings, and publishing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue.values.times import Delay, DequeueAt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_pgqueue.functions.connection import Connection
    from django_pgqueue.functions.new_message import NewMessage


@dataclass(frozen=True, slots=True)
class Published:
    """Message that a publish has enqueued.  ``task`` is None for a raw message."""

    id: int
    queue: str
    task: str | None


@dataclass(frozen=True, slots=True)
class Route:
    """Message that a publish would enqueue, and the patterns that match."""

    queue: str
    task: str | None
    priority: int
    max_attempts: int | None
    patterns: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBinding:
    exchange: str
    pattern: str
    kind: str = "topic"
    queue: str
    task: str | None = None
    priority: int = 0
    max_attempts: int | None = 5

    @property
    def key(self) -> tuple[str, ...]:
        """Identity of the binding.  A task is bound to a pattern only once, whatever its queue."""
        return self.exchange, self.kind, self.pattern, self.task or "", self.queue if self.task is None else ""


# cast(), because Django writes numbers into the statement: -9223372036854775808::bigint negates a number too large.
PUBLISH = """
select p_id, p_queue, p_task from pgqueue_message_publish(
    %s, %s, %s::jsonb, %s::jsonb, %s, coalesce(cast(%s as bigint), pgqueue_now(now()) + %s::bigint), true{version})
"""
PUBLISH, PUBLISH_STAMPED = PUBLISH.format(version=""), PUBLISH.format(version=", %s")


def message_publish(
    connection: Connection,
    exchange: str,
    routing_key: str,
    message: NewMessage,
    *,
    priority: int | None = None,
) -> list[Published] | None:
    """Enqueues a message for every binding that matches, and returns the messages.  None: there is no such exchange.

    Queue, task and attempts are those of the bindings.  So is the priority, if ``priority`` is None.
    """
    at = message.when.ms if isinstance(message.when, DequeueAt) else None
    delay_ms = message.when.ms if isinstance(message.when, Delay) else None
    what = (message.content, message.headers, priority, at, delay_ms)
    version = () if message.version is None else (message.version,)
    with connection.cursor() as cursor:
        cursor.execute(PUBLISH_STAMPED if version else PUBLISH, (exchange, routing_key, *what, *version))
        rows = cursor.fetchall()
    return None if rows and rows[0][0] is None else [Published(*row) for row in rows]


def exchange_route(connection: Connection, exchange: str, routing_key: str) -> list[Route]:
    """Returns the messages that a publish with this routing key would enqueue."""
    with connection.cursor() as cursor:
        cursor.execute("select * from pgqueue_exchange_route(%s, %s)", (exchange, routing_key))
        return [Route(*row) for row in cursor.fetchall()]


def exchange_declare(connection: Connection, name: str, *, declared: bool = False) -> bool:
    """Makes an exchange.  False: it exists already."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_exchange_declare(%s, %s)", (name, declared))
        return bool(cursor.fetchone()[0])


def exchange_delete(connection: Connection, name: str) -> bool:
    """Deletes an exchange with its bindings.  False: there was none."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_exchange_delete(%s)", (name,))
        return bool(cursor.fetchone()[0])


def binding_declare(connection: Connection, binding: KnownBinding, *, declared: bool = False) -> tuple[int, bool]:
    """Makes or updates a binding.  Returns its id and whether anything has changed."""
    what = (binding.exchange, binding.pattern, binding.queue, binding.task, binding.kind)
    with connection.cursor() as cursor:
        cursor.execute(
            "select p_id, p_changed from pgqueue_binding_declare(%s, %s, %s, %s, %s, %s, %s, %s)",
            (*what, binding.priority, binding.max_attempts, declared),
        )
        binding_id, changed = cursor.fetchone()
        return binding_id, changed


def binding_delete(connection: Connection, binding: KnownBinding) -> bool:
    """Deletes a binding.  False: there was none."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_binding_delete(%s, %s, %s, %s, %s)",
            (binding.exchange, binding.pattern, binding.queue, binding.task, binding.kind),
        )
        return bool(cursor.fetchone()[0])


def binding_compile(connection: Connection, kind: str, pattern: str) -> None:
    """Lets PostgreSQL check whether a pattern can be bound.  Raises DataError with the reason if it cannot."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_binding_compile(%s, %s)", (kind, pattern))


BINDINGS = """
select b.exchange, b.pattern, b.kind, b.queue, b.task, b.priority, b.max_attempts, b.declared
from pgqueue_binding b order by b.exchange, b.kind, b.pattern, b.queue, b.task
"""


def bindings(connection: Connection) -> Iterable[tuple[KnownBinding, bool]]:
    """Returns all bindings, and whether the code of a project declares them."""
    names = ("exchange", "pattern", "kind", "queue", "task", "priority", "max_attempts")
    with connection.cursor() as cursor:
        cursor.execute(BINDINGS)
        rows = cursor.fetchall()
    return [(KnownBinding(**dict(zip(names, row, strict=False))), row[-1]) for row in rows]


def exchanges(connection: Connection) -> dict[str, bool]:
    """Returns all exchanges, and whether the code of a project declares them."""
    with connection.cursor() as cursor:
        cursor.execute("select e.name, e.declared from pgqueue_exchange e order by e.name")
        return dict(cursor.fetchall())


def bindings_lock(connection: Connection) -> None:
    """Keeps other sessions that call this from updating the bindings until the end of the transaction."""
    with connection.cursor() as cursor:
        # A publish only reads the table, so it goes on.  Any login of the database could hold an advisory lock.
        cursor.execute("lock table pgqueue_binding in share row exclusive mode")
