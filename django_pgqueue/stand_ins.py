"""Backends for the settings of tests, where no queue is wanted::

    TASKS = {"default": {"BACKEND": "django_pgqueue.stand_ins.ImmediateBackend"}}

They are Django's own, and know what ``@task`` knows here: with Django's, ``django.tasks.task(max_attempts=5)`` is a
TypeError.  (Tasks that are declared with ``django_pgqueue.tasks.task`` may run on Django's own as well.)
Nothing is retried: ``max_attempts`` and ``backoff`` are looked at, then left alone.
"""

from __future__ import annotations

from django_pgqueue import compat
from django_pgqueue.tasks import PgQueueTask


class DummyBackend(compat.DummyBackend):
    """Runs nothing, and keeps what was enqueued in ``results``."""

    task_class = PgQueueTask


class ImmediateBackend(compat.ImmediateBackend):
    """Runs each task where it is enqueued."""

    task_class = PgQueueTask
