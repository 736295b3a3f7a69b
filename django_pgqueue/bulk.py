"""Many jobs at once: one transaction, one statement for thousands of messages, and never all of them in memory."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from django_pgqueue import content, functions, schedule, unique
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.exceptions import InvalidMessage, PgQueueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django_pgqueue.compat import AnyTask

MESSAGES_A_STATEMENT = 5000


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a task for ``enqueue_many``, with what differs from the task's own values."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    priority: int | None = None
    run_after: dt.datetime | dt.timedelta | None = None
    queue_name: str | None = None
    channel: str | None = None


def enqueue_many(task: AnyTask, calls: Iterable[Any], *, on_progress: Callable[[int], None] | None = None) -> int:
    """Enqueues one message for each item of ``calls`` and answers how many items there were.

    An item is a ``Call``, a tuple (positional arguments), a dictionary (keyword arguments), or the only argument
    itself.  All are enqueued, or none: in the caller's transaction, or in one of its own.  ``calls`` may be a generator
    of any length.  ``on_progress`` is called with the number so far.  Unlike ``enqueue`` this makes no results and
    sends no signals.

    >>> enqueue_many(send_receipt, Order.objects.values_list("pk", flat=True).iterator())  # doctest: +SKIP
    250000
    """
    backend = task.get_backend()
    if not isinstance(backend, PgQueueBackend):
        kind = type(backend).__qualname__
        message = f"{task.module_path} is on the backend {task.backend!r}, a {kind}, which keeps no jobs in PostgreSQL."
        raise PgQueueError(message)
    connection, count = connections[backend.settings.database], 0
    with transaction.atomic(using=backend.settings.database):
        encoder = Encoder(task, backend, now=functions.now(connection))
        items = iter(calls)
        while chunk := list(islice(items, MESSAGES_A_STATEMENT)):
            encoder.enqueue(connection, chunk, first=count)
            count += len(chunk)
            if on_progress is not None:
                on_progress(count)
    return count


class Encoder:
    """Makes statements of calls; what most messages share is said once."""

    def __init__(self, task: AnyTask, backend: PgQueueBackend, *, now: dt.datetime) -> None:
        backend.validate_task(task)
        self.task = task
        self.backend = backend
        self.now = now
        self.limit = backend.settings.max_content_bytes
        self.has_key = getattr(task, "unique_key", None) is not None
        self.columns = self._columns(task)

    def enqueue(self, connection: functions.Connection, chunk: list[Any], *, first: int) -> None:
        if self.has_key or any(type(item) is Call for item in chunk):
            objects = [self._object(item, f"calls[{first + n}]") for n, item in enumerate(chunk)]
            functions.message_create_many(connection, f"[{','.join(objects)}]")
        else:
            contents = [self._content(item, f"calls[{first + n}]")[0] for n, item in enumerate(chunk)]
            headers = json.dumps(self.columns["headers"]) if "headers" in self.columns else None
            functions.message_create_alike(connection, f"[{','.join(contents)}]", **self.columns | {"headers": headers})

    def _content(self, item: Any, what: str) -> tuple[str, dict[str, Any]]:
        kind = type(item)
        if kind is Call:
            arguments = {"args": item.args, "kwargs": item.kwargs}
        elif kind is dict:
            arguments = {"args": (), "kwargs": item}
        else:
            arguments = {"args": item if kind is tuple else (item,), "kwargs": {}}
        normal = content.normalize(arguments, what)
        return content.dump(normal, max_bytes=self.limit, what=what), normal

    def _object(self, item: Any, what: str) -> str:
        text, arguments = self._content(item, what)
        columns = dict(self._own_columns(item, what) if type(item) is Call else self.columns)
        key = unique.key_of(self.task, arguments)
        if key is not None:
            until_started = getattr(self.task, "unique_until", "finished") == "started"
            columns |= {"unique_key": key, "on_conflict": getattr(self.task, "on_conflict", "keep")}
            columns |= {"until_started": until_started}
        return f'{{"content":{text},{json.dumps(columns, ensure_ascii=False)[1:]}'

    def _own_columns(self, call: Call, what: str) -> dict[str, Any]:
        if call.channel is not None and not content.is_name(call.channel):
            message = f"{what}: {call.channel!r} can not be the name of a channel: {content.NAMES_ARE}."
            raise InvalidMessage(message)
        run_after = self.now + call.run_after if isinstance(call.run_after, dt.timedelta) else call.run_after
        own: dict[str, Any] = {"priority": call.priority, "queue_name": call.queue_name, "run_after": run_after}
        changes = {name: value for name, value in own.items() if value is not None}
        columns = self._columns(replace(self.task, **changes))
        return columns if call.channel is None else columns | {"channel": call.channel}

    def _columns(self, task: AnyTask) -> dict[str, Any]:
        columns: dict[str, Any] = {
            "task": task.module_path,
            "queue": task.queue_name,
            "priority": int(task.priority),
            "max_attempts": self.backend.max_attempts(task),
        }
        delay = getattr(task, "delay", None)
        run_after = task.run_after if delay is None else self.now + delay
        if run_after is not None:
            columns |= {"dequeue_at": schedule.not_before(run_after), "headers": {"run_after": run_after.isoformat()}}
        return columns
