"""Raw messages, without tasks: the use that LonnyMQ, pg_mq and BlaboSoft's queue were made for."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from django_pgqueue import functions, traces
from django_pgqueue.backend import lookup
from django_pgqueue.backend.lookup import database_of
from django_pgqueue.conf import Options
from django_pgqueue.exceptions import AttemptLost, InvalidMessage
from django_pgqueue.tasks import retry, sensitive
from django_pgqueue.values import content, times

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator

    from django_pgqueue.queue.listener import AsyncListener, Listener
    from django_pgqueue.queue.receiver import Pump

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
LARGEST_LIMIT = 2**31 - 1
LONGEST_LOCK_SECONDS, LONGEST_WAIT_SECONDS = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class Queue:
    """A named queue of raw messages, used inside or outside of transactions.

    What is sent in a transaction is there when the transaction commits, and never was when it rolls back; so is what is
    received and ended in one.  Workers (``manage.py qworker``) leave raw messages alone, whatever the queue.

    >>> Queue("warehouse").send({"order": 7})  # doctest: +SKIP
    1
    >>> message = Queue("warehouse").receive(lock_seconds=30)  # doctest: +SKIP
    >>> message.complete()  # doctest: +SKIP
    """

    name: str
    database: str | None = None
    """Its alias.  None: that of the default backend, or the only one that has a queue."""
    max_content_bytes: int = field(default=Options().max_content_bytes, kw_only=True)

    def __post_init__(self) -> None:
        _checked_name("queue", self.name)

    @property
    def alias(self) -> str:
        """Of the database that it is in: not before it is asked for, since queues are made while apps are loaded."""
        return database_of(self.database)

    def send(
        self,
        content: Any,
        *,
        priority: int = 0,
        run_after: dt.datetime | dt.timedelta | None = None,
        dequeue_at: int | None = None,
        channel: str | None = None,
        headers: dict[str, Any] | None = None,
        max_attempts: int | None = 5,
    ) -> int:
        """Sends one message, anything that JSON can say, and answers its id.

        ``run_after``: not before this time, or this time from now.  ``dequeue_at``: the same in epoch milliseconds;
        historical and negative values go ahead of other messages of the same ``priority`` (-100 to 100, higher first).
        ``max_attempts``: tries that end in an error before the message fails; None: one.
        """
        at, delay_ms = times.split(run_after=run_after, dequeue_at=dequeue_at)
        with self._sending() as sending:
            said = sending.added_to(headers)
            message_id = functions.message_create(
                connections[self.alias],
                self._encode(content, "content"),
                queue=self.name,
                priority=_checked_priority(priority),
                dequeue_at=at,
                delay_ms=delay_ms,
                channel=_checked_name("channel", channel),
                headers=None if said is None else self._encode(said, "headers"),
                max_attempts=_checked_max_attempts(max_attempts),
            ).id
            sending.sent(message_id)
        return message_id

    def send_many(self, contents: Iterable[Any], *, priority: int = 0, channel: str | None = None) -> list[int]:
        """Sends messages with one statement and answers their ids, in the order of ``contents``: all of them, or none
        where the channel is full (``ChannelFull``).
        """
        common: dict[str, Any] = {
            "queue": self.name,
            "priority": _checked_priority(priority),
            "channel": _checked_name("channel", channel),
        }
        with self._sending() as sending:
            headers = sending.added_to(None)
            if headers is not None:
                common["headers"] = headers
            # The contents are encoded once, and one by one, so that the size limit is that of each message.
            tail = json.dumps(common, ensure_ascii=False)[1:]
            items = [f'{{"content":{self._encode(item, f"contents[{n}]")},{tail}' for n, item in enumerate(contents)]
            connection = connections[self.alias]
            with transaction.atomic(using=self.alias) if channel is not None else nullcontext():
                ids = functions.message_create_many(connection, f"[{','.join(items)}]")
                if None in ids:
                    raise functions.refusal(connection, channel, f"contents[{ids.index(None)}]")
            sending.sent(count=len(ids))
        return cast("list[int]", ids)

    def receive(self, *, lock_seconds: float = 60) -> ReceivedMessage | None:
        """Takes the next ready message and holds it for ``lock_seconds``; None: there is none."""
        return next(iter(self.receive_many(1, lock_seconds=lock_seconds)), None)

    def receive_many(self, limit: int, *, lock_seconds: float = 60) -> list[ReceivedMessage]:
        """Takes up to ``limit`` ready messages: highest priority first, then oldest."""
        if type(limit) is not int or not 1 <= limit <= LARGEST_LIMIT:
            message = f"limit={limit!r} is not a whole number from 1 to {LARGEST_LIMIT:,}."
            raise InvalidMessage(message)
        began_ns = time.time_ns()
        connection = connections[self.alias]
        received = functions.message_dequeue(
            connection,
            queues=[self.name],
            limit=limit,
            lock_ms=_checked_lock_ms(lock_seconds),
            brief=connection.autocommit and not connection.in_atomic_block,
        )
        traces.received(received, traced=lookup.traces_enabled(self.alias), queue=self.name, began_ns=began_ns)
        return [self.received(message) for message in received]

    def listen(self, *, slots: int = 1, lock_seconds: float = 60, notifications: bool | None = None) -> Listener:
        """An iterator over the messages, which waits for the next one, and never ends by itself.

        At most ``slots`` messages are held at a time; ``ack`` or ``nack`` of one brings the next.  As long as they are
        held their locks are renewed; ``close`` gives them back.  It has a connection and a thread of its own.
        ``notifications=False``: polls every second, as behind a transaction pooler; None: as the backend's LISTEN says.
        """
        from django_pgqueue.queue.listener import Listener  # noqa: PLC0415 -- knows workers, which know tasks

        return Listener(self, slots=slots, lock_ms=_checked_lock_ms(lock_seconds), notifications=notifications)

    def alisten(self, *, slots: int = 1, lock_seconds: float = 60, notifications: bool | None = None) -> AsyncListener:
        """``listen`` for ``async for``; end its messages with ``aack`` and ``anack``."""
        from django_pgqueue.queue.listener import AsyncListener  # noqa: PLC0415

        return AsyncListener(self, slots=slots, lock_ms=_checked_lock_ms(lock_seconds), notifications=notifications)

    def received(self, message: functions.Received, *, listener: Pump | None = None) -> ReceivedMessage:
        return ReceivedMessage(
            received=message, database=self.alias, max_content_bytes=self.max_content_bytes, listener=listener
        )

    def _sending(self) -> traces.Sending:
        return traces.sending(traced=lookup.traces_enabled(self.alias), queue=self.name)

    def _encode(self, value: Any, what: str) -> str:
        return content.encode(value, max_bytes=self.max_content_bytes, what=what)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReceivedMessage:
    """A message that this consumer holds.  ``complete``, ``defer`` and ``fail`` end it; these three and
    ``heartbeat`` raise ``AttemptLost`` when the lock ran out and somebody else has the message.
    """

    received: functions.Received
    database: str
    max_content_bytes: int
    listener: Pump | None = None

    # Read when they are asked for: JSON that Python can not read (an integer of 5,000 digits, written by hand) is the
    # matter of this message, which can be failed, and not of those that were received with it.

    @cached_property
    def content(self) -> Any:
        return _read(self.received.content)

    @cached_property
    def headers(self) -> dict[str, Any] | None:
        headers: dict[str, Any] | None = _read(self.received.headers)
        return headers

    @cached_property
    def state(self) -> Any:
        """What the last attempt left for this one."""
        return _read(self.received.state)

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.id} of queue {self.queue!r}, attempt {self.attempt}>"

    @property
    def id(self) -> int:
        return self.received.id

    @property
    def attempt(self) -> int:
        """Which try this is, from 1 on."""
        return self.received.attempt

    @property
    def max_attempts(self) -> int | None:
        return self.received.max_attempts

    @property
    def queue(self) -> str:
        return self.received.queue

    @property
    def channel(self) -> str | None:
        return self.received.channel

    @property
    def priority(self) -> int:
        return self.received.priority

    @property
    def worker(self) -> str:
        """Who holds the message: a name that stands for this database session."""
        return self.received.worker

    @property
    def created_at(self) -> dt.datetime:
        return self.received.created_at

    def complete(self, result: Any = None) -> None:
        """Done: the message leaves the queue; ``result`` stands in the history."""
        end = functions.Success(
            self.id,
            self.attempt,
            result=None if result is None else self._encode(result, "result"),
        )
        with self._ending():
            self._ours(bool(functions.message_complete(self._connection, [end], worker=self.worker)))

    def defer(self, seconds: float = 0, *, state: Any = None, error: BaseException | str | None = None) -> None:
        """Back into the queue, to be received again in ``seconds``, with ``state`` for the next attempt.

        With an ``error`` this is a retry: after ``max_attempts`` of them the message fails instead.
        """
        with self._ending():
            status = functions.message_defer(
                self._connection,
                self.received,
                delay_ms=_checked_wait_ms(seconds),
                state=None if state is None else self._encode(state, "state"),
                error=None if error is None else functions.Error.of(error),
            )
            self._ours(status is not None)

    def fail(self, error: BaseException | str) -> None:
        """Given up: the message leaves the queue; ``error`` stands in the history, from where it can be sent again."""
        with self._ending():
            self._ours(functions.message_fail(self._connection, self.received, error=functions.Error.of(error)))

    def ack(self, result: Any = None) -> None:
        """``complete``, by its other name."""
        self.complete(result)

    def nack(self, delay: float = 0, *, error: BaseException | str | None = None) -> None:
        """``defer``, by its other name: to be received again in ``delay`` seconds."""
        self.defer(delay, error=error)

    async def aack(self, result: Any = None) -> None:
        """``ack`` in async code."""
        await sync_to_async(self.ack)(result)

    async def anack(self, delay: float = 0, *, error: BaseException | str | None = None) -> None:
        """``nack`` in async code."""
        await sync_to_async(self.nack)(delay, error=error)

    def heartbeat(self, *, lock_seconds: float = 60) -> None:
        """Holds the message for ``lock_seconds`` from now, while the work goes on."""
        lock_ms = _checked_lock_ms(lock_seconds)
        held = functions.message_heartbeat(self._connection, [self.received], worker=self.worker, lock_ms=lock_ms)
        self._ours(bool(held))

    def is_sensitive(self) -> bool:
        """Whether a backend of its database hides what raw messages say."""
        known = [backend.settings for backend in lookup.pgqueue_backends().values()]
        return any(sensitive.hides_message(None, one) for one in known if one.database == self.database)

    def _encode(self, value: Any, what: str) -> str:
        return content.encode(value, max_bytes=self.max_content_bytes, what=what)

    @property
    def _connection(self) -> Any:
        return connections[self.database]

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Who listens gets the next message when this one has ended: when that is committed."""
        if self.listener is None:
            yield
            return
        self.listener.ending(self.received)
        try:
            yield
        except AttemptLost:
            self.listener.ended(self.received)
            raise
        except BaseException:
            self.listener.kept(self.received)
            raise
        ended = partial(self.listener.ended, self.received)
        if self._connection.in_atomic_block:
            transaction.on_commit(ended, using=self.database)
        else:
            ended()

    def _ours(self, done: bool) -> None:
        if not done:
            message = (
                f"Message {self.id} of queue {self.queue!r}: attempt {self.attempt} is not ours any more: it was ended "
                "or its lock ran out and another consumer has it. Use a longer lock_seconds, or heartbeat()."
            )
            raise AttemptLost(message)


def _read(json_text: str | None) -> Any:
    return None if json_text is None else json.loads(json_text)


def _checked_name(what: str, name: str | None) -> str | None:
    if name is None and what == "channel":
        return None
    return content.name_of(what, name)


def _checked_priority(priority: int) -> int:
    if type(priority) is not int or not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        message = f"priority={priority!r} is not a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}."
        raise InvalidMessage(message)
    return priority


def _checked_max_attempts(max_attempts: int | None) -> int | None:
    if not retry.is_max_attempts(max_attempts):
        message = f"max_attempts={max_attempts!r} is neither a whole number from 1 to {retry.MOST_ATTEMPTS:,} nor None."
        raise InvalidMessage(message)
    return max_attempts


def _checked_lock_ms(lock_seconds: float) -> int:
    if type(lock_seconds) not in (int, float) or not 0 < lock_seconds < LONGEST_LOCK_SECONDS:
        message = f"lock_seconds={lock_seconds!r} is not a number of seconds above 0 (and below a billion)."
        raise InvalidMessage(message)
    return max(1, round(lock_seconds * 1000))


def _checked_wait_ms(seconds: float) -> int:
    if type(seconds) not in (int, float) or not abs(seconds) < LONGEST_WAIT_SECONDS:
        message = f"seconds={seconds!r} is not a number of seconds (below {LONGEST_WAIT_SECONDS:,.0f})."
        raise InvalidMessage(message)
    return round(seconds * 1000)
