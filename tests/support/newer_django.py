"""Runs jobs on a Django whose results, contexts and tasks have a field more than today's."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import django

TASKS = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"


def add_fields() -> None:
    """Before this package, or any backend, imports these classes."""
    package, base = importlib.import_module(TASKS), importlib.import_module(f"{TASKS}.base")
    metadata: Any = ("metadata", "dict[str, object]", dataclasses.field(default_factory=dict, hash=False))
    for name in ("Task", "TaskResult", "TaskContext"):
        kind = getattr(base, name)
        its = kind[kind.__parameters__] if hasattr(kind, "__parameters__") else kind
        newer = dataclasses.make_dataclass(name, [metadata], bases=(its,), frozen=True, slots=True, kw_only=True)
        newer.__module__ = kind.__module__
        for module in (package, base):
            if hasattr(module, name):
                setattr(module, name, newer)


def main() -> None:
    add_fields()
    django.setup()
    from django_pgqueue.tasks import task
    from django_pgqueue.testing import drain
    from tests.support.site.jobs import at_once

    def look(context: Any) -> list[Any]:
        assert repr(context.task_result)
        if context.attempt == 1:
            raise ValueError
        return [context.metadata, context.task_result.metadata, context.task_result.task.metadata]

    look.__qualname__ = "look"
    globals()["look"] = declared = task(takes_context=True, max_attempts=2, backoff=at_once)(look)
    result = declared.enqueue()
    assert result == declared.get_result(result.id)
    drain()
    result.refresh()
    assert result == declared.get_result(result.id)
    assert result.return_value == [{}, {}, {}], result.errors
