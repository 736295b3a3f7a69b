"""The schedules that the project's code declares, on its tasks."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue import registry
from django_pgqueue.backend import PgQueueBackend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.compat import AnyTask
    from django_pgqueue.recurrence import Recurrence

logger = logging.getLogger("django_pgqueue.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    name: str
    task: AnyTask
    recurrence: Recurrence
    max_attempts: int | None
    max_content_bytes: int


def declarations(database: str) -> dict[str, Declaration]:
    """Those of the tasks whose queue is in ``database``, by name, from the modules that have been imported."""
    found: dict[str, Declaration] = {}
    for task in registry.scheduled():
        backend = task.get_backend()
        if not isinstance(backend, PgQueueBackend) or backend.settings.database != database:
            continue
        for name, recurrence in _named(task):
            if name in found:
                other = found[name].task.module_path
                logger.error(
                    "schedule name=%s is declared by %s and by %s: %s counts", name, other, task.module_path, other
                )
                continue
            found[name] = Declaration(
                name=name,
                task=task,
                recurrence=recurrence,
                max_attempts=backend.max_attempts(task),
                max_content_bytes=backend.settings.max_content_bytes,
            )
    return found


def _named(task: AnyTask) -> Iterator[tuple[str, Recurrence]]:
    """The schedules of a task, under their names: the task's path, numbered where there are several."""
    declared = getattr(task, "schedule", None) or ()
    several = declared if isinstance(declared, tuple) else (declared,)
    for number, one in enumerate(several, start=1):
        yield one.name or (task.module_path if len(several) == 1 else f"{task.module_path}#{number}"), one
