"""Backends for the settings of tests, where no queue is wanted, or no worker::

    TASKS = {"default": {"BACKEND": "django_pgqueue.stand_ins.ImmediateBackend"}}

``DummyBackend`` and ``ImmediateBackend`` are Django's own, and know what ``@task`` knows here: with Django's,
``django.tasks.task(max_attempts=5)`` is a TypeError.  (Tasks that are declared with ``django_pgqueue.tasks.task`` may
run on Django's own as well.)  Nothing is retried: ``max_attempts`` and ``backoff`` are looked at, then left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_pgqueue import compat
from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.tasks.task import PgQueueTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django_pgqueue.compat import AnyTask, AnyTaskResult


class DummyBackend(compat.DummyBackend):
    """Runs nothing, and keeps what was enqueued in ``results``."""

    task_class = PgQueueTask


class ImmediateBackend(compat.ImmediateBackend):
    """Runs each task where it is enqueued."""

    task_class = PgQueueTask


class InlineBackend(PgQueueBackend):
    """Keeps jobs in PostgreSQL, and runs what is ready whenever something is enqueued, as ``testing.inline`` does."""

    def enqueue(  # type: ignore[override]
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyTaskResult:
        from django_pgqueue.testing.inline import run  # noqa: PLC0415 -- imports models: not before the apps are ready

        result: AnyTaskResult = super().enqueue(task, args, kwargs)
        run(self.alias)
        result.refresh()
        return result
