"""Bulk enqueue: one transaction, one statement for thousands of messages, and never all of them in memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections, transaction
from django.utils.asyncio import async_unsafe

from django_pgqueue import functions, traces
from django_pgqueue.backend.pgqueue import PgQueueBackend, validate_path
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import DuplicateMessage, InvalidContent, InvalidMessage, PgQueueError
from django_pgqueue.functions import NewMessage
from django_pgqueue.tasks import call as task_call, sensitive
from django_pgqueue.tasks.validation import require_task
from django_pgqueue.values import names, redaction, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django_pgqueue.compat import AnyTask

MESSAGES_A_STATEMENT = 5000
CHARACTERS_A_STATEMENT = 4_000_000
"""Few but large messages fill a statement as well: memory is limited, and so is the size of a jsonb value."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call of a task for ``enqueue_many``, with the values that differ from the task's own."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    priority: int | None = None
    run_after: dt.datetime | dt.timedelta | None = None
    queue_name: str | None = None
    channel: str | None = None
    where: str | None = field(default=None, compare=False)
    """Name of the call in errors, such as "line 7"; default: its position."""


@async_unsafe("enqueue_many() is a transaction, which async code cannot open: await sync_to_async(enqueue_many)(…).")
def enqueue_many(task: AnyTask, calls: Iterable[Any], *, on_progress: Callable[[int], None] | None = None) -> int:
    """Enqueues one message for each item of ``calls`` and returns how many items there were.

    An item is a ``Call``, a tuple (positional arguments), a dictionary (keyword arguments), or the only argument
    itself.  Either all messages are enqueued or none: in the caller's transaction, or in a new one.  ``calls`` may be a
    generator of any length.  ``on_progress`` is called with the number of items so far.  Unlike ``enqueue``, this
    function makes no results and sends no signals.

    >>> enqueue_many(send_receipt, Order.objects.values_list("pk", flat=True).iterator())  # doctest: +SKIP
    250000
    """
    require_task(task)
    if isinstance(calls, str | bytes | Mapping):
        message = f"Each part of a {type(calls).__name__} would be a job: put it into a list."
        raise TypeError(message)
    backend = task.get_backend()
    if not isinstance(backend, PgQueueBackend):
        kind = type(backend).__qualname__
        message = f"{task.module_path} is on the backend {task.backend!r}, a {kind}, which keeps no jobs in PostgreSQL."
        raise PgQueueError(message)
    sending = traces.sending(traced=backend.settings.traces, queue=task.queue_name, task=task.module_path)
    with sending, transaction.atomic(using=backend.settings.database):
        count = Bulk(task, backend, connections[backend.settings.database], sending).enqueue(calls, on_progress)
        sending.sent(count=count)
    return count


class Encoded(NamedTuple):
    """Content that waits for its statement.  ``message`` is None if all other fields are those of all messages."""

    text: str
    message: NewMessage | None
    what: str


class Bulk:
    """Turns calls into statements, and makes the fields that most messages share only once."""

    def __init__(
        self,
        task: AnyTask,
        backend: PgQueueBackend,
        connection: functions.Connection,
        sending: traces.Sending = traces.UNTRACED,
    ) -> None:
        backend.validate_task(task)
        validate_path(task)
        self.task = task
        self.backend = backend
        self.connection = connection
        self.sending = sending
        with functions.explained(backend.settings.database):
            self.now = functions.now(connection)
        self.limit = backend.settings.max_content_bytes
        self.shared = self._shared(task)
        self.known: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.keyed = getattr(task, "unique_key", None) is not None
        self.locked = False
        channel = getattr(task, "channel", None)
        self.after = task_call.after_of(task)
        self.alike = not self.keyed and not callable(channel) and self.after is None
        self.like = NewMessage(content="null", channel=None if callable(channel) else channel, **self.shared)
        self.raises = self.keyed and getattr(task, "on_conflict", "keep") == "raise"

    def enqueue(self, calls: Iterable[Any], on_progress: Callable[[int], None] | None) -> int:
        with redaction.redacted(sensitive.hides(self.task, self.backend.settings)):
            return self._enqueue(calls, on_progress)

    def _enqueue(self, calls: Iterable[Any], on_progress: Callable[[int], None] | None) -> int:
        batch: list[Encoded] = []
        size = done = 0

        def send(*, last: bool = False) -> None:
            nonlocal batch, size, done
            with functions.explained(self.backend.settings.database):
                self._send(batch, last=last)
            done += len(batch)
            batch, size = [], 0
            if on_progress is not None:
                on_progress(done)

        for position, item in enumerate(calls):
            if self.alike and isinstance(item, Call):
                if batch:
                    send()
                self.alike = False  # from here on each message has fields of its own
            encoded = self._encoded(item, position)
            batch.append(encoded)
            size += len(encoded.text)
            if len(batch) >= MESSAGES_A_STATEMENT or size >= CHARACTERS_A_STATEMENT:
                send()
        if batch:
            send(last=True)
        return done

    def _send(self, batch: list[Encoded], *, last: bool) -> None:
        if self.keyed and not self.locked:
            # One statement takes its keys in order.  Several statements take them in the order of the calls.
            functions.message_lock_keys(self.connection, self.task.module_path, alone=not last)
            self.locked = True
        if self.raises:
            self._send_each(batch)
            return
        if self.after is not None:  # the SQL for many messages knows no dependencies
            for encoded in batch:
                functions.enqueue(self.connection, encoded.message or self.like, encoded.what)
            return
        messages = [encoded.message for encoded in batch if encoded.message is not None]
        if messages:
            ids = functions.enqueue_many(self.connection, messages)
        else:
            ids = functions.enqueue_alike(self.connection, [encoded.text for encoded in batch], self.like)
        self._check_taken(batch, ids)

    def _check_taken(self, batch: list[Encoded], ids: list[int | None]) -> None:
        if None in ids:
            refused = batch[ids.index(None)]
            raise functions.refusal(self.connection, (refused.message or self.like).channel, refused.what)

    def _send_each(self, batch: list[Encoded]) -> None:
        """Enqueues one by one: only then the SQL returns whether each is new.  In the order of keys, as other bulks."""
        keyed = [
            (encoded.message.unique.key, encoded.message, encoded.what)
            for encoded in batch
            if encoded.message is not None and encoded.message.unique is not None
        ]
        for _, message, what in sorted(keyed, key=itemgetter(0)):
            created = functions.enqueue(self.connection, message)
            if not created.is_new:
                words = (
                    f"{what}: {self.task.module_path} is already enqueued: message {created.id} holds its unique key. "
                    "Use on_conflict='keep' to keep that message without an error."
                )
                raise DuplicateMessage(words, existing_id=created.id)

    def _encoded(self, item: Any, position: int) -> Encoded:
        what = item.where if isinstance(item, Call) and item.where is not None else f"calls[{position}]"
        try:
            args, kwargs = _arguments(item)
            arguments, text = task_call.write(args, kwargs, max_bytes=self.limit, what=what)
            task_call.fit(self.task, arguments)
            return Encoded(text, None if self.alike else self._message(item, arguments, text), what)
        except InvalidContent:
            raise  # its text names the place
        except (PgQueueError, InvalidTask, TypeError, ValueError, OverflowError) as error:
            message = f"{what}: {error}"
            raise InvalidMessage(message) from error

    def _message(self, item: Any, arguments: dict[str, Any], text: str) -> NewMessage:
        """Returns the message of an item that has fields of its own."""
        shared, own_channel = self.shared, None
        if isinstance(item, Call):
            if item.channel is not None:
                own_channel = names.name_of("channel", item.channel)
            shared = self._shared_of(item)
        channel, key = task_call.channel_and_key(self.task, arguments, channel=own_channel)
        return NewMessage(content=text, channel=channel, unique=key, after=self.after, **shared)

    def _shared_of(self, call: Call) -> dict[str, Any]:
        # Most calls differ in few ways, and making and validating a task takes longer than everything else.
        differs = (call.priority, call.queue_name, call.run_after)
        shared = self.known.get(differs)
        if shared is None:
            shared = self._shared(self._task_of(call))
            if call.run_after is None:
                self.known[differs] = shared
        return shared

    def _shared(self, task: AnyTask) -> dict[str, Any]:
        return task_call.shared(task, self.backend.settings, add_headers=self.sending.added_to, now=self.now)

    def _task_of(self, call: Call) -> AnyTask:
        """Returns the task with the values of a call, validated as ``using`` and ``enqueue`` do."""
        own: dict[str, Any] = {"priority": call.priority, "queue_name": call.queue_name, "run_after": call.run_after}
        changes = {name: value for name, value in own.items() if value is not None}
        if isinstance(call.run_after, dt.timedelta):
            changes["run_after"] = times.later(self.now, call.run_after)
        if "run_after" in changes and hasattr(self.task, "run_in"):
            changes["run_in"] = None
        task = replace(self.task, **changes)
        self.backend.validate_task(task)
        return task


def _arguments(item: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(item, Call):
        if not isinstance(item.args, (tuple, list)):
            message = f"args must be a list or a tuple, not {item.args!r:.80}."
            raise InvalidMessage(message)
        if not isinstance(item.kwargs, dict):
            message = f"kwargs must be a dictionary, not {item.kwargs!r:.80}."
            raise InvalidMessage(message)
        return item.args, item.kwargs
    if isinstance(item, dict):
        return (), item
    return item if isinstance(item, tuple) else (item,), {}
