"""System checks: what can be known before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.core import checks
from django.db import connections
from django.utils.module_loading import import_string

from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import task_backends
from django_pgqueue.conf import Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from django.apps import AppConfig


@checks.register(checks.Tags.compatibility)
def check_backends(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Looks at every alias in TASKS without making backends that are not ours."""
    found: list[checks.CheckMessage] = []
    for alias, backend in ours().items():
        found += _check_options(alias, backend.options)
        found += _check_database(alias, backend.settings.database)
    return found


def ours() -> dict[str, PgQueueBackend]:
    """The backends of this package by alias: found by class, so that subclasses count and others are not made."""
    return {
        alias: cast("PgQueueBackend", task_backends[alias])
        for alias, params in task_backends.settings.items()
        if _is_ours(params["BACKEND"])
    }


def _is_ours(path: str) -> bool:
    try:
        return issubclass(import_string(path), PgQueueBackend)
    except ImportError:  # django.tasks reports it
        return False


def _check_options(alias: str, options: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    known = Options.names()
    for key in options:
        if key not in known:
            yield checks.Error(
                f"TASKS[{alias!r}]['OPTIONS'] has the unknown key {key!r}.",
                hint=f"Known are {', '.join(known)}.",
                id="pgqueue.E001",
            )
    yield from _check_values(alias, Options.of(options))


def _check_values(alias: str, settings: Options) -> Iterator[checks.CheckMessage]:
    wrong: dict[str, object] = {}
    if settings.max_attempts is not None and (type(settings.max_attempts) is not int or settings.max_attempts < 1):
        wrong["MAX_ATTEMPTS"] = settings.max_attempts
    if settings.history_days is not None and (type(settings.history_days) is not int or settings.history_days < 1):
        wrong["HISTORY_DAYS"] = settings.history_days
    if type(settings.max_content_bytes) is not int or settings.max_content_bytes < 1:
        wrong["MAX_CONTENT_BYTES"] = settings.max_content_bytes
    seconds = {"LOCK_SECONDS": settings.lock_seconds, "GRACE_SECONDS": settings.grace_seconds}
    wrong |= {key: value for key, value in seconds.items() if type(value) not in (int, float) or value <= 0}
    for key, value in wrong.items():
        yield checks.Error(
            f"TASKS[{alias!r}]['OPTIONS'][{key!r}] is {value!r}.",
            hint="It must be a number above 0" + (", or None." if key in {"MAX_ATTEMPTS", "HISTORY_DAYS"} else "."),
            id="pgqueue.E002",
        )


def _check_database(alias: str, database: str) -> Iterator[checks.CheckMessage]:
    if database not in connections.settings:
        yield checks.Error(
            f"TASKS[{alias!r}]['OPTIONS']['DATABASE'] is {database!r}, which is not in DATABASES.",
            hint=f"DATABASES has {', '.join(connections.settings)}.",
            id="pgqueue.E003",
        )
    elif (vendor := connections[database].vendor) != "postgresql":
        yield checks.Error(
            f"The queue of TASKS[{alias!r}] is in the database {database!r}, which is {vendor}.",
            hint="The queue is made of PostgreSQL's own features: point DATABASE in OPTIONS at a PostgreSQL database.",
            id="pgqueue.E004",
        )
