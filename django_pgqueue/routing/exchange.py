"""Exchanges, to which messages are published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import DataError, transaction

from django_pgqueue import functions, traces
from django_pgqueue.backend import lookup
from django_pgqueue.backend.lookup import connected, database_of
from django_pgqueue.compat import InvalidTask
from django_pgqueue.conf import Options
from django_pgqueue.exceptions import InvalidMessage, InvalidPattern, UnknownExchange
from django_pgqueue.functions import KnownBinding, NewMessage, Published, Route
from django_pgqueue.routing.patterns import checked_key, checked_name, checked_pattern
from django_pgqueue.tasks.validation import require_task
from django_pgqueue.values import content as contents, times
from django_pgqueue.values.arguments import checked_max_attempts, checked_priority
from django_pgqueue.values.names import name_of
from django_pgqueue.values.signatures import signature

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from django_pgqueue.compat import AnyTask

OURS = ("exchange", "routing_key")
"""Headers that every published message gets."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A name to publish to, and its bindings.  Nothing is read or written before you call one of its methods.

    ``database``: alias of the database that has the queue; None: that of the default backend.

    >>> orders = Exchange("orders")
    >>> orders.declare(), orders.bind("order.#", queue="audit")  # doctest: +SKIP
    (True, True)
    """

    name: str
    database: str | None = None
    max_content_bytes: int = field(default=Options().max_content_bytes, kw_only=True)

    def __post_init__(self) -> None:
        checked_name(self.name)

    def publish(
        self,
        routing_key: str,
        content: Any,
        *,
        headers: dict[str, Any] | None = None,
        priority: int | None = None,
        run_after: dt.datetime | dt.timedelta | None = None,
    ) -> list[Published]:
        """Enqueues one message in every queue and for every task that is bound with a matching pattern: in one
        statement, in the caller's transaction.  Returns what was enqueued: an empty list if no pattern matches.  Raises
        UnknownExchange if the database has no such exchange.
        """
        when = times.when(run_after=run_after)
        traced = lookup.traces_enabled(self._database)
        with connected(self.database) as connection, traces.sending(traced=traced, queue=self.name) as sending:
            published = functions.message_publish(
                connection,
                self.name,
                checked_key(routing_key),
                NewMessage(
                    content=contents.encode(content, max_bytes=self.max_content_bytes),
                    headers=self._encoded(sending.added_to(headers)),
                    when=when,
                    version=lookup.version_of(self._database),
                ),
                priority=None if priority is None else checked_priority(priority),
            )
            if published is None:
                raise UnknownExchange(self._is_unknown())
            sending.sent(count=len(published))
        return published

    def route(self, routing_key: str) -> list[Route]:
        """Returns where a message with this routing key would go."""
        with connected(self.database) as connection:
            return functions.exchange_route(connection, self.name, checked_key(routing_key))

    def declare(self) -> bool:
        """Makes the exchange.  Returns False if it was there."""
        with connected(self.database) as connection:
            return functions.exchange_declare(connection, self.name)

    def delete(self) -> bool:
        """Deletes the exchange with its bindings; messages stay.  Returns False if there was none."""
        with connected(self.database) as connection:
            return functions.exchange_delete(connection, self.name)

    def bind(
        self,
        pattern: str,
        *,
        queue: str | None = None,
        task: AnyTask | None = None,
        regex: bool = False,
        priority: int | None = None,
        max_attempts: int | None = 5,
    ) -> bool:
        """Binds a queue, whose consumers get raw messages, or a task.  Returns False if it was bound so already.

        ``priority`` and ``max_attempts`` are those of the messages; a task brings its own.  Raises InvalidPattern for a
        pattern that PostgreSQL refuses, InvalidTask for a task that does not take content and routing key, and
        UnknownExchange.
        """
        if task is not None:
            check_arguments(task)
        return self._declared(
            self._binding(pattern, queue, task, regex=regex, priority=priority, max_attempts=max_attempts)
        )

    def unbind(
        self, pattern: str, *, queue: str | None = None, task: AnyTask | None = None, regex: bool = False
    ) -> bool:
        """Removes a binding.  Returns False if there was none."""
        with connected(self.database) as connection:
            return functions.binding_delete(connection, self._binding(pattern, queue, task, regex=regex))

    def _binding(
        self,
        pattern: str,
        queue: str | None,
        task: AnyTask | None,
        *,
        regex: bool,
        priority: int | None = None,
        max_attempts: int | None = 5,
    ) -> KnownBinding:
        if (queue is None) == (task is None):
            message = "Give either the queue or the task that receives the messages: a task has its own queue."
            raise InvalidMessage(message)
        if task is not None:
            return binding_of(task, self.name, pattern, regex=regex)
        return KnownBinding(
            exchange=self.name,
            pattern=checked_pattern(pattern, regex=regex),
            kind=kind(regex=regex),
            queue=name_of("queue", queue),
            priority=checked_priority(priority or 0),
            max_attempts=checked_max_attempts(max_attempts),
        )

    def _declared(self, binding: KnownBinding) -> bool:
        try:
            # A pattern that PostgreSQL refuses must not break the caller's transaction.
            with connected(self.database) as connection, transaction.atomic(using=connection.alias):
                if self.name not in functions.exchanges(connection):
                    raise UnknownExchange(self._is_unknown())
                return functions.binding_declare(connection, binding)[1]
        except DataError as error:
            raise InvalidPattern(functions.refusal_of(error)) from error

    def _encoded(self, headers: Mapping[str, Any] | None) -> str | None:
        if headers is None:
            return None
        for name in OURS:
            if name in headers:
                message = f"The header {name!r} is set by the exchange. Choose another name for {headers[name]!r}."
                raise InvalidMessage(message)
        return contents.encode(headers, max_bytes=self.max_content_bytes, what="headers")

    def _is_unknown(self) -> str:
        return (
            f"There is no exchange {self.name!r} in the database {self._database!r}. Subscribe a task to it, or write "
            f"declare_exchange({self.name!r}), and run manage.py qbind; or create it now: "
            f"Exchange({self.name!r}).declare()."
        )

    @property
    def _database(self) -> str:
        return database_of(self.database)


def publish(
    exchange: str,
    routing_key: str,
    content: Any,
    *,
    headers: dict[str, Any] | None = None,
    priority: int | None = None,
    run_after: dt.datetime | dt.timedelta | None = None,
    database: str | None = None,
) -> list[Published]:
    """``Exchange(exchange).publish(...)``: one message for every queue and every task with a matching binding.

    >>> publish("orders", "order.created", {"order": 7})  # doctest: +SKIP
    [Published(id=12, queue='default', task='shop.tasks.audit')]
    """
    return Exchange(exchange, database).publish(
        routing_key, content, headers=headers, priority=priority, run_after=run_after
    )


async def apublish(
    exchange: str,
    routing_key: str,
    content: Any,
    *,
    headers: dict[str, Any] | None = None,
    priority: int | None = None,
    run_after: dt.datetime | dt.timedelta | None = None,
    database: str | None = None,
) -> list[Published]:
    """``publish`` in async code."""
    return await sync_to_async(publish)(
        exchange,
        routing_key,
        content,
        headers=headers,
        priority=priority,
        run_after=run_after,
        database=database,
    )


def kind(*, regex: bool) -> str:
    return "regex" if regex else "topic"


def binding_of(task: AnyTask, exchange: str, pattern: str, *, regex: bool) -> KnownBinding:
    """Returns the binding of a task, whose messages are like those of an enqueue."""
    backend = task.get_backend()
    return KnownBinding(
        exchange=checked_name(exchange),
        pattern=checked_pattern(pattern, regex=regex),
        kind=kind(regex=regex),
        queue=task.queue_name,
        task=task.module_path,
        priority=int(task.priority),
        max_attempts=backend.max_attempts(task) if hasattr(backend, "max_attempts") else None,
    )


def check_arguments(task: AnyTask) -> None:
    """Raises InvalidTask if the function of a task cannot be called with content and routing key."""
    require_task(task)
    given = ["content", "order.created"]
    try:
        signature(task.func).bind(*([None] if task.takes_context else []), *given)
    except TypeError as error:
        message = (
            f"{task.module_path} is subscribed, and gets two arguments, the content and the routing key: {error}. "
            f"Declare def {task.func.__name__}(content, routing_key)."
        )
        raise InvalidTask(message) from error
