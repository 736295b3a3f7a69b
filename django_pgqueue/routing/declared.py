"""The exchanges and bindings that the project's code declares.  ``manage.py qbind`` brings them into the database."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from django_pgqueue.backend.lookup import default_database
from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.compat import Task
from django_pgqueue.functions import KnownBinding
from django_pgqueue.routing.exchange import binding_of, check_arguments, kind
from django_pgqueue.routing.patterns import checked_name, checked_pattern
from django_pgqueue.values.arguments import checked_max_attempts, checked_priority
from django_pgqueue.values.names import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.compat import AnyTask

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subscription:
    task: AnyTask
    exchange: str
    pattern: str
    regex: bool

    @property
    def stands(self) -> bool:
        """Whether the task is still at its path: the module may have been loaded again, or be a test's."""
        module_path, _, name = self.task.module_path.rpartition(".")
        found: Any = getattr(sys.modules.get(module_path), name, None)
        return issubclass(type(found), Task) and bool(found.func is self.task.func)


@dataclass(slots=True)
class DeclaredRoutes:
    """The declarations of the code.  An exchange, or a binding without a task, has the alias of its database,
    or None.
    """

    exchanges: set[tuple[str | None, str]] = field(default_factory=set)
    bindings: dict[tuple[Any, ...], KnownBinding] = field(default_factory=dict)
    subscriptions: dict[tuple[Any, ...], Subscription] = field(default_factory=dict)

    def exchanges_in(self, database: str) -> set[str]:
        names = {name for alias, name in self.exchanges if (alias or default_database()) == database}
        return names | {binding.exchange for binding in self.bindings_in(database).values()}

    def bindings_in(self, database: str) -> dict[tuple[str, ...], KnownBinding]:
        found = [binding for (alias, *_), binding in self.bindings.items() if (alias or default_database()) == database]
        for each in self.subscriptions.values():
            backend = each.task.get_backend()
            if each.stands and isinstance(backend, PgQueueBackend) and backend.settings.database == database:
                found.append(binding_of(each.task, each.exchange, each.pattern, regex=each.regex))
        return {binding.key: binding for binding in found}


DECLARED = DeclaredRoutes()


def subscribe(exchange: str, pattern: str, *, regex: bool = False) -> Callable[[T], T]:
    """Declares that a task gets what is published to an exchange with a matching routing key.

    The task is called with the content and the routing key.  The database changes only with ``manage.py qbind``.

    >>> @subscribe("orders", "order.#")  # doctest: +SKIP
    ... @task
    ... def audit(content, routing_key): ...
    """
    checked_name(exchange)
    checked_pattern(pattern, regex=regex)

    def declare(task: T) -> T:
        if not isinstance(task, Task):
            name = getattr(task, "__qualname__", repr(task))
            message = f"@subscribe({exchange!r}, {pattern!r}) must stand above @task: {name} is not a task."
            raise TypeError(message)
        check_arguments(task)
        key = (exchange, kind(regex=regex), pattern, task.module_path)
        DECLARED.subscriptions[key] = Subscription(task, exchange, pattern, regex)
        return task

    return declare


def declare_exchange(name: str, *, database: str | None = None) -> None:
    """Declares an exchange to which nothing in the code is bound."""
    DECLARED.exchanges.add((database, checked_name(name)))


def declare_binding(
    exchange: str,
    pattern: str,
    *,
    queue: str,
    regex: bool = False,
    priority: int = 0,
    max_attempts: int | None = 5,
    database: str | None = None,
) -> None:
    """Declares that a queue of raw messages gets what is published with a matching routing key."""
    binding = KnownBinding(
        exchange=checked_name(exchange),
        pattern=checked_pattern(pattern, regex=regex),
        kind=kind(regex=regex),
        queue=name_of("queue", queue),
        priority=checked_priority(priority),
        max_attempts=checked_max_attempts(max_attempts),
    )
    DECLARED.bindings[(database, *binding.key)] = binding
