"""The option ``tasks``: the tasks that a DataFrame may name, and their settings for messages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

EVERY = "*"
DOTTED_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTask:
    """The task's settings for its messages, where the row has no value."""

    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    channel: str | None = None
    headers: str | None = None
    """JSON text."""


def declared(*tasks: Any) -> str:
    """Returns the text for the option ``tasks``.  Call it on the driver, which can import the project.

    A row without queue, priority, max_attempts or channel gets those of its task, and one without headers expires as
    its task says.  A channel that a task computes from its arguments, and its unique key, are columns of the DataFrame.

    >>> df.write.format("pgqueue").option("tasks", declared(send_receipt)).mode("append").save()  # doctest: +SKIP
    """
    return json.dumps({task.module_path: _of(task) for task in tasks}, sort_keys=True)


def parse(value: str) -> dict[str, DeclaredTask]:
    """Parses the text of ``declared``; or dotted paths with commas between, of tasks without settings; or ``*``.

    >>> list(parse("shop.tasks.send_receipt, shop.tasks.ship"))
    ['shop.tasks.send_receipt', 'shop.tasks.ship']
    """
    if value.lstrip().startswith("{"):
        try:
            return {_path(path): DeclaredTask(**fields) for path, fields in json.loads(value).items()}
        except (ValueError, TypeError, AttributeError):
            raise ValueError(EXPECTED) from None
    return {_path(word.strip()): DeclaredTask() for word in value.split(",") if word.strip()}


EXPECTED = "the result of declared(task, ...), or dotted paths with commas between, or *"


def _path(word: str) -> str:
    if word != EVERY and not DOTTED_PATH.fullmatch(word):
        raise ValueError(EXPECTED)
    return word


def _of(task: Any) -> dict[str, Any]:
    backend = task.get_backend()
    resolved, own_headers = getattr(backend, "max_attempts", None), getattr(backend, "headers", None)
    attempts = resolved(task) if callable(resolved) else getattr(task, "max_attempts", None)
    headers = own_headers(task) if callable(own_headers) else None
    found = {"queue": task.queue_name, "priority": int(task.priority), "max_attempts": attempts}
    channel = getattr(task, "channel", None)
    found |= {"channel": channel} if isinstance(channel, str) else {}
    return found | {"headers": json.dumps(headers)} if headers else found
