"""Keeps the queue's tables where the queue is, for projects with several databases."""

from __future__ import annotations

from typing import Any

from django.db import DEFAULT_DB_ALIAS, router

from django_pgqueue.apps import PgQueueConfig
from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS
from django_pgqueue.exceptions import PgQueueError


class PgQueueRouter:
    """For DATABASE_ROUTERS: models and migrations of the queue belong to the databases that TASKS names::

        DATABASE_ROUTERS = ["django_pgqueue.routers.PgQueueRouter"]

    It has no opinion about any other app.
    """

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        if model._meta.app_label != PgQueueConfig.label:  # noqa: SLF001 -- as every router
            return None
        instance = hints.get("instance")
        return (instance is not None and instance._state.db) or default_database()  # noqa: SLF001

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
        if app_label != PgQueueConfig.label:
            return None
        return db in databases() if databases() else None


def databases() -> dict[str, list[str]]:
    """The databases that hold a queue, each with the aliases in TASKS that say so."""
    from django_pgqueue.checks import ours  # noqa: PLC0415 -- routers are made before the settings of tasks are read

    found: dict[str, list[str]] = {}
    for alias, backend in ours().items():
        found.setdefault(backend.settings.database, []).append(alias)
    return found


def default_database() -> str:
    """Of the default backend if it is ours, else of the first one that is."""
    from django_pgqueue.checks import ours  # noqa: PLC0415

    backends = ours()
    backend = backends.get(DEFAULT_TASK_BACKEND_ALIAS) or next(iter(backends.values()), None)
    return backend.settings.database if backend else DEFAULT_DB_ALIAS


def database_of(given: str | None) -> str:
    """The database that a call means.  Where it does not say: the default backend's, or the only one.

    Without backends of ours it is where the project's routers have the models.
    """
    from django_pgqueue.checks import ours  # noqa: PLC0415
    from django_pgqueue.models import Message  # noqa: PLC0415

    if given is not None:
        return given
    backends, known = ours(), databases()
    if not known:
        return router.db_for_write(Message)
    if DEFAULT_TASK_BACKEND_ALIAS in backends or len(known) == 1:
        return default_database()
    choices = ", ".join(f"{alias!r} ({', '.join(sorted(of))})" for alias, of in sorted(known.items()))
    message = (
        f"There are queues in several databases, and no backend in TASKS is called {DEFAULT_TASK_BACKEND_ALIAS!r} and "
        f"ours: say which one is meant, as database=. Known, with their backends: {choices}."
    )
    raise PgQueueError(message)
