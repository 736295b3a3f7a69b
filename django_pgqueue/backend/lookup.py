"""The backends of this package, and the databases that hold their queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.utils.module_loading import import_string

from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS, task_backends
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.functions import explained
from django_pgqueue.values import versions


def pgqueue_backends() -> dict[str, PgQueueBackend]:
    """Returns the backends of this package, subclasses included, by alias.  It does not make other backends."""
    return {
        alias: cast("PgQueueBackend", task_backends[alias])
        for alias, params in task_backends.settings.items()
        if isinstance(params, Mapping) and is_pgqueue_backend(params.get("BACKEND"))
    }


def is_pgqueue_backend(path: Any) -> bool:
    """Whether a dotted path names PgQueueBackend or a subclass."""
    try:
        backend = import_string(path or "")
    except ImportError:  # django.tasks reports it
        return False
    return isinstance(backend, type) and issubclass(backend, PgQueueBackend)


def databases() -> dict[str, list[str]]:
    """Returns the databases that hold a queue, each with the aliases in TASKS that name it."""
    found: dict[str, list[str]] = {}
    for alias, backend in pgqueue_backends().items():
        found.setdefault(backend.settings.database, []).append(alias)
    return found


def holds_a_queue(database: str) -> bool:
    """Whether one of these is the database of ``database``: two aliases may lead to the same one.

    In tests they do by MIRROR in TEST, or because their test databases have the same name.
    """
    return any(are_the_same(database, alias) for alias in databases() if alias in connections)


def are_the_same(one: str, other: str) -> bool:
    mine, its = connections[one].settings_dict, connections[other].settings_dict
    if one == other or its["TEST"]["MIRROR"] == one:
        return True
    if not its["NAME"] or any(mine[key] != its[key] for key in ("ENGINE", "HOST", "PORT")):
        return False
    return mine["NAME"] in (its["NAME"], connections[other].creation.test_db_signature()[-1])


def default_database() -> str:
    """Returns the database of the default backend if it is one of this package, else of the first that is."""
    backends = pgqueue_backends()
    backend = backends.get(DEFAULT_TASK_BACKEND_ALIAS) or next(iter(backends.values()), None)
    return backend.settings.database if backend else DEFAULT_DB_ALIAS


def database_of(given: str | None, result: Any = None) -> str:
    """Returns the database of a call: the given one, else that of the backend of ``result``, if this is a task's
    result; else that of the default backend, else the only one.

    Without backends of this package, it is the database to which the project's routers send the models.
    """
    from django_pgqueue.models.tables import Message  # noqa: PLC0415 -- routers are made before the apps are ready

    if given is None and isinstance(alias := getattr(result, "backend", None), str):
        backend = task_backends[alias]
        given = backend.settings.database if isinstance(backend, PgQueueBackend) else None
    if given is not None:
        return given
    backends, known = pgqueue_backends(), databases()
    if not known:
        return router.db_for_write(Message)
    if DEFAULT_TASK_BACKEND_ALIAS in backends or len(known) == 1:
        return default_database()
    choices = ", ".join(f"{alias!r} ({', '.join(sorted(of))})" for alias, of in sorted(known.items()))
    message = (
        f"Several databases have a queue, and TASKS has no PgQueueBackend named {DEFAULT_TASK_BACKEND_ALIAS!r}: name "
        f"the database, as database=. The databases and their backends are: {choices}."
    )
    raise PgQueueError(message)


@contextmanager
def connected(given: str | None, result: Any = None) -> Iterator[Any]:
    """Gives Django's connection to the database of a call, whose errors say what an outdated queue needs."""
    database = database_of(given, result)
    with explained(database):
        yield connections[database]


@cache
def traces_enabled(database: str) -> bool:
    """Whether any backend with its queue in this database has TRACES on: raw messages belong to no backend."""
    backends = pgqueue_backends().values()
    return any(backend.settings.traces for backend in backends if backend.settings.database == database)


@cache
def version_of(database: str) -> str | None:
    """Returns the VERSION of the backends with their queue in this database, and of several the default one's."""
    backends = [backend for backend in pgqueue_backends().values() if backend.settings.database == database]
    backends.sort(key=lambda backend: backend.alias != DEFAULT_TASK_BACKEND_ALIAS)
    named = (backend.settings.version for backend in backends if backend.settings.version is not None)
    return versions.checked(next(named, None))


def _forget(setting: str, **_: Any) -> None:
    if setting == "TASKS":
        traces_enabled.cache_clear()
        version_of.cache_clear()


setting_changed.connect(_forget)
