"""Exchanges: what is bound to them, and what is published."""

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
    """A message that a publish has enqueued.  ``task`` is None for a raw message."""

    id: int
    queue: str
    task: str | None


@dataclass(frozen=True, slots=True)
class Route:
    """A message that a publish would enqueue, and the patterns that match."""

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
        """What makes it this one.  A task is bound to a pattern once, whatever its queue."""
        return self.exchange, self.kind, self.pattern, self.task or "", self.queue if self.task is None else ""


# cast(), because Django writes numbers into the statement: -9223372036854775808::bigint is minus a number too large.
PUBLISH = """
select p_id, p_queue, p_task from pgqueue_message_publish(
    %s, %s, %s::jsonb, %s::jsonb, %s, coalesce(cast(%s as bigint), pgqueue_now(now()) + %s::bigint), true)
"""


def message_publish(
    connection: Connection,
    exchange: str,
    routing_key: str,
    message: NewMessage,
    *,
    priority: int | None = None,
) -> list[Published] | None:
    """Enqueues a message in every queue that wants it, and returns these messages.  None: there is no such exchange.

    Queue, task, attempts and, where ``priority`` is None, the priority are those of the bindings.
    """
    at = message.when.ms if isinstance(message.when, DequeueAt) else None
    delay_ms = message.when.ms if isinstance(message.when, Delay) else None
    what = (message.content, message.headers, priority, at, delay_ms)
    with connection.cursor() as cursor:
        cursor.execute(PUBLISH, (exchange, routing_key, *what))
        rows = cursor.fetchall()
    return None if rows and rows[0][0] is None else [Published(*row) for row in rows]


def exchange_route(connection: Connection, exchange: str, routing_key: str) -> list[Route]:
    """Where a message with this routing key would go."""
    with connection.cursor() as cursor:
        cursor.execute("select * from pgqueue_exchange_route(%s, %s)", (exchange, routing_key))
        return [Route(*row) for row in cursor.fetchall()]


def exchange_declare(connection: Connection, name: str, *, declared: bool = False) -> bool:
    """Makes an exchange.  False: it was there."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_exchange_declare(%s, %s)", (name, declared))
        return bool(cursor.fetchone()[0])


def exchange_delete(connection: Connection, name: str) -> bool:
    """Deletes an exchange with its bindings.  False: there was none."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_exchange_delete(%s)", (name,))
        return bool(cursor.fetchone()[0])


def binding_declare(connection: Connection, binding: KnownBinding, *, declared: bool = False) -> tuple[int, bool]:
    """Makes a binding, or brings it up to date: its id, and whether anything has changed."""
    what = (binding.exchange, binding.pattern, binding.queue, binding.task, binding.kind)
    with connection.cursor() as cursor:
        cursor.execute(
            "select p_id, p_changed from pgqueue_binding_declare(%s, %s, %s, %s, %s, %s, %s, %s)",
            (*what, binding.priority, binding.max_attempts, declared),
        )
        binding_id, changed = cursor.fetchone()
        return binding_id, changed


def binding_delete(connection: Connection, binding: KnownBinding) -> bool:
    """Takes a binding away.  False: it was not there."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pgqueue_binding_delete(%s, %s, %s, %s, %s)",
            (binding.exchange, binding.pattern, binding.queue, binding.task, binding.kind),
        )
        return bool(cursor.fetchone()[0])


def binding_compile(connection: Connection, kind: str, pattern: str) -> None:
    """Lets PostgreSQL look whether a pattern can be bound: a DataError says why not."""
    with connection.cursor() as cursor:
        cursor.execute("select pgqueue_binding_compile(%s, %s)", (kind, pattern))


BINDINGS = """
select b.exchange, b.pattern, b.kind, b.queue, b.task, b.priority, b.max_attempts, b.declared
from pgqueue_binding b order by b.exchange, b.kind, b.pattern, b.queue, b.task
"""


def bindings(connection: Connection) -> Iterable[tuple[KnownBinding, bool]]:
    """All bindings, and whether they stand in the code of a project."""
    names = ("exchange", "pattern", "kind", "queue", "task", "priority", "max_attempts")
    with connection.cursor() as cursor:
        cursor.execute(BINDINGS)
        rows = cursor.fetchall()
    return [(KnownBinding(**dict(zip(names, row, strict=False))), row[-1]) for row in rows]


def exchanges(connection: Connection) -> dict[str, bool]:
    """All exchanges, and whether they stand in the code of a project."""
    with connection.cursor() as cursor:
        cursor.execute("select e.name, e.declared from pgqueue_exchange e order by e.name")
        return dict(cursor.fetchall())


def bindings_lock(connection: Connection) -> None:
    """Until the end of the transaction, nobody else who asks for it brings the bindings up to date."""
    with connection.cursor() as cursor:
        # Whoever publishes only reads.  An advisory lock could be held by any login of the database.
        cursor.execute("lock table pgqueue_binding in share row exclusive mode")
