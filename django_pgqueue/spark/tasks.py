"""The option ``tasks``: which tasks a DataFrame may name, and what they say of their messages."""

from __future__ import annotations

import json
import re
from typing import Any

from django_pgqueue.spark.messages import DeclaredTask

EVERY = "*"
DOTTED_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def declared(*tasks: Any) -> str:
    """Text for the option ``tasks``, made on the driver, where the project can be imported.

    A row that has no queue, priority or max_attempts gets those of its task.

    >>> df.write.format("pgqueue").option("tasks", declared(send_receipt)).mode("append").save()  # doctest: +SKIP
    """
    return json.dumps({task.module_path: _of(task) for task in tasks}, sort_keys=True)


def parse(value: str) -> dict[str, DeclaredTask]:
    """What ``declared`` made; or dotted paths with commas between, of tasks that say nothing; or ``*``.

    >>> parse("shop.tasks.send_receipt")
    {'shop.tasks.send_receipt': Declared(queue='default', priority=0, max_attempts=None)}
    """
    if value.lstrip().startswith("{"):
        try:
            return {_path(path): DeclaredTask(**said) for path, said in json.loads(value).items()}
        except (ValueError, TypeError, AttributeError):
            raise ValueError(EXPECTED) from None
    return {_path(word.strip()): DeclaredTask() for word in value.split(",") if word.strip()}


EXPECTED = "what declared(task, ...) returns, or dotted paths with commas between, or *"


def _path(word: str) -> str:
    if word != EVERY and not DOTTED_PATH.fullmatch(word):
        raise ValueError(EXPECTED)
    return word


def _of(task: Any) -> dict[str, Any]:
    backend = task.get_backend()
    resolved = getattr(backend, "max_attempts", None)
    attempts = resolved(task) if callable(resolved) else getattr(task, "max_attempts", None)
    return {"queue": task.queue_name, "priority": int(task.priority), "max_attempts": attempts}
