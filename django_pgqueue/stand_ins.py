"""Backends for test settings, for tests without a queue or without a worker::

    TASKS = {"default": {"BACKEND": "django_pgqueue.stand_ins.ImmediateBackend", "QUEUES": []}}

``DummyBackend`` and ``ImmediateBackend`` are Django's own with the options of this package's ``@task``: with Django's,
``django.tasks.task(max_attempts=5)`` is a TypeError.  (Tasks that are declared with ``django_pgqueue.tasks.task`` run
on Django's own as well.)  They retry nothing: they validate ``max_attempts`` and ``backoff``, and then ignore them.
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
    """Backend that runs nothing and keeps what was enqueued in ``results``."""

    task_class = PgQueueTask


class ImmediateBackend(compat.ImmediateBackend):
    """Backend that runs each task inside of its ``enqueue``, but no durable one: ``InlineBackend`` does."""

    task_class = PgQueueTask


class InlineBackend(PgQueueBackend):
    """Backend that keeps jobs in PostgreSQL.  Each ``enqueue`` runs all ready jobs, as ``testing.inline`` does."""

    def enqueue(  # type: ignore[override]
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyTaskResult:
        from django_pgqueue.testing.inline import run  # noqa: PLC0415 -- imports models: not before the apps are ready

        result: AnyTaskResult = super().enqueue(task, args, kwargs)
        run(self.alias)
        result.refresh()
        return result
