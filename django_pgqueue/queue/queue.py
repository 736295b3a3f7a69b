"""Raw messages, without tasks: the use that LonnyMQ, pg_mq and BlaboSoft's queue were made for."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from django.db import connections, transaction

from django_pgqueue import functions, traces
from django_pgqueue.backend import lookup
from django_pgqueue.backend.lookup import database_of
from django_pgqueue.conf import Options
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.functions import NewMessage
from django_pgqueue.queue.message import ReceivedMessage
from django_pgqueue.values import content, times
from django_pgqueue.values.arguments import (
    MAX_LIMIT,
    checked_channel,
    checked_lock_ms,
    checked_max_attempts,
    checked_priority,
)
from django_pgqueue.values.names import name_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from django_pgqueue.queue.listener import AsyncListener, Listener
    from django_pgqueue.queue.receiver import Pump


@dataclass(frozen=True, slots=True)
class Queue:
    """A named queue of raw messages, used inside or outside of transactions.

    A message that you send in a transaction exists when the transaction commits, and never existed when it rolls back.
    The same holds for messages that you receive and end in one.  Workers (``manage.py qworker``) leave raw messages
    alone, whatever the queue.

    >>> Queue("warehouse").send({"order": 7})  # doctest: +SKIP
    1
    >>> message = Queue("warehouse").receive(lock_seconds=30)  # doctest: +SKIP
    >>> message.complete()  # doctest: +SKIP
    """

    name: str
    database: str | None = None
    """The alias of the database.  None: that of the default backend, or the only one that has a queue."""
    max_content_bytes: int = field(default=Options().max_content_bytes, kw_only=True)

    def __post_init__(self) -> None:
        name_of("queue", self.name)

    @property
    def alias(self) -> str:
        """The alias of its database, found when it is asked for, because queues are made while apps are loaded."""
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
        """Sends one message, any value that JSON can represent, and returns its id.

        ``run_after``: not before this time, or this time from now.  ``dequeue_at``: the same in epoch milliseconds;
        historical and negative values go ahead of other messages of the same ``priority`` (-100 to 100, higher first).
        ``max_attempts``: tries that end in an error before the message fails; None: one.  Raises InvalidContent for
        what JSON cannot represent, InvalidMessage for any other argument, and ChannelFull if the channel refuses it.
        """
        when = times.when(run_after=run_after, dequeue_at=dequeue_at)
        alias = self.alias
        with self._sending(alias) as sending:
            own_headers = sending.added_to(headers)
            message = NewMessage(
                content=self._encode(content, "content"),
                queue=self.name,
                priority=checked_priority(priority),
                when=when,
                channel=checked_channel(channel),
                headers=None if own_headers is None else self._encode(own_headers, "headers"),
                max_attempts=checked_max_attempts(max_attempts),
            )
            with functions.explained(alias):
                created = functions.enqueue(connections[alias], message)
            sending.sent(created.id)
        return created.id

    def send_many(self, contents: Iterable[Any], *, priority: int = 0, channel: str | None = None) -> list[int]:
        """Sends messages with one statement and returns their ids, in the order of ``contents``: all of them, or none
        where the channel is full (``ChannelFull``).
        """
        checked_priority(priority)
        checked_channel(channel)
        alias = self.alias
        with self._sending(alias) as sending:
            headers = sending.added_to(None)
            like = NewMessage(
                content="null",
                queue=self.name,
                priority=priority,
                channel=channel,
                headers=None if headers is None else json.dumps(headers),
            )
            # One by one, so that the size limit is that of each message.
            texts = [self._encode(item, f"contents[{n}]") for n, item in enumerate(contents)]
            connection = connections[alias]
            whole = transaction.atomic(using=alias) if channel is not None else nullcontext()
            with functions.explained(alias), whole:
                ids = functions.enqueue_alike(connection, texts, like)
                if None in ids:
                    raise functions.refusal(connection, channel, f"contents[{ids.index(None)}]")
            sending.sent(count=len(ids))
        return cast("list[int]", ids)

    def receive(self, *, lock_seconds: float = 60) -> ReceivedMessage | None:
        """Takes the next ready message and holds it for ``lock_seconds``.  Returns None if there is none."""
        return next(iter(self.receive_many(1, lock_seconds=lock_seconds)), None)

    def receive_many(self, limit: int, *, lock_seconds: float = 60) -> list[ReceivedMessage]:
        """Takes up to ``limit`` ready messages: highest priority first, then oldest."""
        if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
            message = f"limit={limit!r} is not a whole number from 1 to {MAX_LIMIT:,}."
            raise InvalidMessage(message)
        began_ns = time.time_ns()
        connection = connections[self.alias]
        lock_ms = checked_lock_ms(lock_seconds)
        with functions.explained(self.alias):
            received = functions.message_dequeue(
                connection,
                queues=[self.name],
                limit=limit,
                lock_ms=lock_ms,
                brief=connection.autocommit and not connection.in_atomic_block,
            )
        traces.received(received, traced=lookup.traces_enabled(self.alias), queue=self.name, began_ns=began_ns)
        return [self.received(message) for message in received]

    def listen(self, *, slots: int = 1, lock_seconds: float = 60, notifications: bool | None = None) -> Listener:
        """Returns an iterator over the messages, which waits for the next one, and never ends by itself.

        You hold at most ``slots`` messages at a time; ``ack`` or ``nack`` of one brings the next.  The listener renews
        the locks of held messages, and ``close`` gives them back.  It has a connection and a thread of its own.

        ``notifications=False``: it polls every second, as behind a transaction pooler; None: as the backend's LISTEN
        says.
        """
        from django_pgqueue.queue.listener import Listener  # noqa: PLC0415 -- knows workers, which know tasks

        return Listener(self, slots=slots, lock_ms=checked_lock_ms(lock_seconds), notifications=notifications)

    def alisten(self, *, slots: int = 1, lock_seconds: float = 60, notifications: bool | None = None) -> AsyncListener:
        """``listen`` for ``async for``; end its messages with ``aack`` and ``anack``."""
        from django_pgqueue.queue.listener import AsyncListener  # noqa: PLC0415

        return AsyncListener(self, slots=slots, lock_ms=checked_lock_ms(lock_seconds), notifications=notifications)

    def received(self, message: functions.Received, *, listener: Pump | None = None) -> ReceivedMessage:
        return ReceivedMessage(
            received=message, database=self.alias, max_content_bytes=self.max_content_bytes, listener=listener
        )

    def _sending(self, alias: str) -> traces.Sending:
        return traces.sending(traced=lookup.traces_enabled(alias), queue=self.name)

    def _encode(self, value: Any, what: str) -> str:
        return content.encode(value, max_bytes=self.max_content_bytes, what=what)
