"""Database router for projects with several databases: it keeps the queue's tables in the queue's database."""

from __future__ import annotations

from typing import Any

from django_pgqueue import conf
from django_pgqueue.backend import lookup


class PgQueueRouter:
    """Router for DATABASE_ROUTERS: models and migrations of the queue belong to the databases that TASKS names::

        DATABASE_ROUTERS = ["django_pgqueue.routers.PgQueueRouter"]

    It has no opinion about any other app.
    """

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        if model._meta.app_label != conf.APP_LABEL:  # noqa: SLF001 -- as every router
            return None
        instance = hints.get("instance")
        return (instance is not None and instance._state.db) or lookup.default_database()  # noqa: SLF001

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
        if app_label != conf.APP_LABEL:
            return None
        return lookup.holds_a_queue(db) if lookup.databases() else None
