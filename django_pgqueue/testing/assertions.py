"""Assertions about the messages in the queue."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.utils.asyncio import async_unsafe

from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS, Task
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.models.tables import Attempt, Message
from django_pgqueue.testing.drain import backend_of
from django_pgqueue.values import content, times
from django_pgqueue.values.times import EpochDateTime, to_epoch_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.compat import AnyTask, AnyTaskResult

MAX_SHOWN = 20


@async_unsafe("assert_enqueued() runs queries, which async code cannot: await aassert_enqueued().")
def assert_enqueued(
    task: AnyTask,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    count: int | None = None,
    run_after: dt.datetime | dt.timedelta | None = None,
    priority: int | None = None,
) -> list[AnyTaskResult]:
    """Fails unless ``task`` is in the queue with the given values, and returns the results that match.

    ``args`` and ``kwargs`` must equal those of the call as a whole.  ``run_after``: a datetime, or a timedelta from the
    enqueue on.  ``count``: the exact number of matches; default: at least one.  A job that has ended is not in the
    queue any more.

    >>> [result] = assert_enqueued(send_receipt, args=[order.pk], queue="mail", count=1)  # doctest: +SKIP
    """
    __tracebackhide__ = True
    wanted = WantedMessage.of(task, args=args, kwargs=kwargs, queue=queue, run_after=run_after, priority=priority)
    _check_count(count)
    found = [message for message in wanted.candidates() if not wanted.differences(message)]
    if not found if count is None else len(found) != count:
        how_often = "not" if not found else f"{len(found)} times"
        often_wanted = "" if count is None else f", and {count} {'time was' if count == 1 else 'times were'} expected"
        message = f"{wanted} is {how_often} enqueued{often_wanted}.\n{wanted.overview()}"
        raise AssertionError(message)
    return [wanted.backend.get_result(str(message.pk)) for message in found]


@async_unsafe("assert_not_enqueued() runs queries, which async code cannot: await aassert_not_enqueued().")
def assert_not_enqueued(
    task: AnyTask | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    run_after: dt.datetime | dt.timedelta | None = None,
    priority: int | None = None,
) -> None:
    """Fails if ``task`` (None: any task) is in the queue with the given values.

    >>> assert_not_enqueued(send_receipt, args=[order.pk])  # doctest: +SKIP
    """
    __tracebackhide__ = True
    wanted = WantedMessage.of(task, args=args, kwargs=kwargs, queue=queue, run_after=run_after, priority=priority)
    found = sum(not wanted.differences(message) for message in wanted.candidates())
    if found:
        message = f"{wanted} is {found} {'time' if found == 1 else 'times'} enqueued.\n{wanted.overview()}"
        raise AssertionError(message)


async def aassert_enqueued(task: AnyTask, **wanted: Any) -> list[AnyTaskResult]:
    """The ``async`` variant of ``assert_enqueued``."""
    __tracebackhide__ = True
    return await sync_to_async(assert_enqueued)(task, **wanted)


async def aassert_not_enqueued(task: AnyTask | None = None, **wanted: Any) -> None:
    """The ``async`` variant of ``assert_not_enqueued``."""
    __tracebackhide__ = True
    await sync_to_async(assert_not_enqueued)(task, **wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMessage:
    """Values that a message must have; None: any value."""

    backend: PgQueueBackend
    task: str | None
    args: list[Any] | None
    kwargs: dict[str, Any] | None
    queue: str | None
    run_after: dt.datetime | dt.timedelta | None
    priority: int | None

    @classmethod
    def of(cls, task: Any, *, args: Any, kwargs: Any, **rest: Any) -> WantedMessage:
        if task is not None and not isinstance(task, Task):
            message = f"{task!r} is not a task. Give the object that @task returned, such as shop.tasks.send_receipt."
            raise PgQueueError(message)
        _check(args=args, kwargs=kwargs, **rest)
        return cls(
            backend=backend_of(DEFAULT_TASK_BACKEND_ALIAS if task is None else task.backend),
            task=None if task is None else task.module_path,
            args=None if args is None else content.normalize(list(args), "args"),
            kwargs=None if kwargs is None else content.normalize(dict(kwargs), "kwargs"),
            **rest,
        )

    def __str__(self) -> str:
        names = ("args", "kwargs", "queue", "run_after", "priority")
        given = [f"{name}={getattr(self, name)!r}" for name in names if getattr(self, name) is not None]
        what = self.task or "Any task"
        return f"{what} with {', '.join(given)}" if given else what

    def candidates(self) -> Iterator[Message]:
        messages = Message.objects.using(self.backend.settings.database).filter(task__isnull=False).order_by("pk")
        yield from messages if self.task is None else messages.filter(task=self.task)

    def differences(self, message: Message) -> list[str]:
        """Returns the names of the values that differ from the wanted ones."""
        args, kwargs = _call(message)
        return [
            name
            for name, differs in (
                ("task", self.task not in (None, message.task)),
                ("args", self.args is not None and self.args != args),
                ("kwargs", self.kwargs is not None and self.kwargs != kwargs),
                ("queue", self.queue not in (None, message.queue)),
                ("run_after", self.run_after is not None and not _is_due(message, self.run_after)),
                ("priority", self.priority not in (None, message.priority)),
            )
            if differs
        ]

    def overview(self) -> str:
        """Returns a text with the messages in the queue, and the number of those that have ended."""
        everything = Message.objects.using(self.backend.settings.database).filter(task__isnull=False).order_by("pk")
        shown = list(everything[: MAX_SHOWN + 1])
        lines = [self._line(message) for message in shown[:MAX_SHOWN]]
        if len(shown) > MAX_SHOWN:
            lines.append(f"  … and {everything.count() - MAX_SHOWN} more")
        text = "\n".join(["Enqueued are:", *lines]) if lines else "Nothing is enqueued."
        ended = Attempt.objects.using(self.backend.settings.database).filter(final=True, task=self.task).count()
        return text + (f"\n{ended} of {self.task} have ended, and so are no longer enqueued." if ended else "")

    def _line(self, message: Message) -> str:
        args, kwargs = _call(message)
        words = [f"{message.task} with args={args!r}, kwargs={kwargs!r}, queue={message.queue!r}"]
        words.append(f"priority={message.priority}")
        if _due_ms(message) > to_epoch_ms(message.created_at):
            words.append(f"run_after={EpochDateTime.from_ms(_due_ms(message))}")
        if message.attempt:
            words.append(f"attempts so far={message.attempt}")
        other = self.differences(message) if message.task == self.task else []
        return f"  {', '.join(words)}" + (f"  <- other {' and '.join(other)}" if other else "")


def _call(message: Message) -> tuple[Any, Any]:
    call = message.content if isinstance(message.content, dict) else {}
    return call.get("args", []), call.get("kwargs", {})


def _is_due(message: Message, run_after: dt.datetime | dt.timedelta) -> bool:
    if isinstance(run_after, dt.timedelta):
        return _due_ms(message) == to_epoch_ms(message.created_at) + times.milliseconds(run_after)
    # The queue keeps milliseconds: a time is rounded up, and a test's stopped clock down.
    return _due_ms(message) in (to_epoch_ms(run_after), times.not_before(run_after))


def _due_ms(message: Message) -> int:
    """Returns when the message was to run at first: each retry has moved ``dequeue_at``."""
    headers = message.headers if message.attempt and isinstance(message.headers, dict) else {}
    if "run_after" in headers:
        return times.not_before(dt.datetime.fromisoformat(headers["run_after"]))
    if "delay_us" in headers:
        delay = dt.timedelta(microseconds=headers["delay_us"])
        return to_epoch_ms(message.created_at) + times.milliseconds(delay)
    return to_epoch_ms(message.created_at) if message.attempt else to_epoch_ms(message.dequeue_at)


def _check(**given: Any) -> None:
    """Raises PgQueueError for an argument that can never match a message."""
    allowed: dict[str, tuple[Any, str]] = {
        "args": ((list, tuple), "a list, such as [7]"),
        "kwargs": (dict, 'a dictionary, such as {"order_id": 7}'),
        "queue": (str, 'the name of a queue, such as "mail"'),
        "run_after": ((dt.datetime, dt.timedelta), "a datetime, or a timedelta from the enqueue on"),
        "priority": (int, "a whole number from -100 to 100"),
    }
    for name, value in given.items():
        kind, right = allowed[name]
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            message = f"{name}={value!r} cannot be compared with a message: it must be {right}."
            raise PgQueueError(message)
    if isinstance(given["run_after"], dt.datetime) and times.lacks_zone(given["run_after"]):
        message = f"run_after={given['run_after']!r} has no time zone: use timezone.make_aware(...)."
        raise PgQueueError(message)


def _check_count(count: int | None) -> None:
    if count is not None and (type(count) is not int or count < 0):
        message = f"count={count!r} is not a whole number from 0 on."
        raise PgQueueError(message)
