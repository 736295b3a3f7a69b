"""A raw message that a consumer has received."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from django_pgqueue import functions
from django_pgqueue.backend import lookup
from django_pgqueue.exceptions import AttemptLost, InvalidMessage
from django_pgqueue.tasks import sensitive
from django_pgqueue.values import content
from django_pgqueue.values.arguments import checked_lock_ms, checked_wait_ms
from django_pgqueue.values.redaction import quote

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from django_pgqueue.queue.receiver import Pump


@dataclass(frozen=True, kw_only=True, repr=False)
class ReceivedMessage:
    """A message that this consumer holds.  ``complete``, ``defer`` and ``fail`` end it; these three and ``heartbeat``
    raise ``AttemptLost`` when the lock ran out and another consumer has the message.
    """

    received: functions.Received
    database: str
    max_content_bytes: int
    listener: Pump | None = None

    # Read when they are asked for: JSON that Python cannot read (an integer of 5,000 digits, written by hand) then
    # concerns this message, which can be failed, and not those that were received with it.

    @cached_property
    def content(self) -> Any:
        return _read(self.received.content)

    @cached_property
    def headers(self) -> dict[str, Any] | None:
        headers: dict[str, Any] | None = _read(self.received.headers)
        return headers

    @cached_property
    def state(self) -> Any:
        """The state that the last attempt left for this one."""
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
        """The name of the message's holder, which stands for this database session."""
        return self.received.worker

    @property
    def created_at(self) -> dt.datetime:
        return self.received.created_at

    def complete(self, result: Any = None) -> None:
        """Ends the message as done: it leaves the queue, and ``result`` stands in the history."""
        end = functions.Success(
            self.id,
            self.attempt,
            result=None if result is None else self._encode(result, "result"),
        )
        with self._ending():
            self._ours(bool(functions.message_complete(self._connection, [end], worker=self.worker)))

    def defer(self, seconds: float = 0, *, state: Any = None, error: BaseException | str | None = None) -> None:
        """Puts the message back into the queue, to be received again in ``seconds``, with ``state`` for the next
        attempt.

        With an ``error`` this is a retry: after ``max_attempts`` of them the message fails instead.
        """
        with self._ending():
            status = functions.message_defer(
                self._connection,
                self.received,
                delay_ms=checked_wait_ms(seconds),
                state=None if state is None else self._encode(state, "state"),
                error=None if error is None else _error(error),
            )
            self._ours(status is not None)

    def fail(self, error: BaseException | str) -> None:
        """Gives the message up: it leaves the queue.  ``error`` stands in the history, from where you can send it
        again.
        """
        with self._ending():
            self._ours(functions.message_fail(self._connection, self.received, error=_error(error)))

    def ack(self, result: Any = None) -> None:
        """``complete``, by its other name."""
        self.complete(result)

    def nack(self, delay: float = 0, *, error: BaseException | str | None = None) -> None:
        """``defer``, by its other name: the message is received again in ``delay`` seconds."""
        self.defer(delay, error=error)

    async def aack(self, result: Any = None) -> None:
        """``ack`` in async code."""
        await sync_to_async(self.ack)(result)

    async def anack(self, delay: float = 0, *, error: BaseException | str | None = None) -> None:
        """``nack`` in async code."""
        await sync_to_async(self.nack)(delay, error=error)

    def heartbeat(self, *, lock_seconds: float = 60) -> None:
        """Renews the lock for ``lock_seconds`` from now, while the work goes on."""
        lock_ms = checked_lock_ms(lock_seconds)
        with functions.explained(self.database):
            held = functions.message_heartbeat(self._connection, [self.received], worker=self.worker, lock_ms=lock_ms)
        self._ours(bool(held))

    def is_sensitive(self) -> bool:
        """Whether a backend of its database hides the contents of raw messages."""
        known = [backend.settings for backend in lookup.pgqueue_backends().values()]
        return any(sensitive.hides_message(None, one) for one in known if one.database == self.database)

    def _encode(self, value: Any, what: str) -> str:
        return content.encode(value, max_bytes=self.max_content_bytes, what=what)

    @property
    def _connection(self) -> Any:
        return connections[self.database]

    @contextmanager
    def _ending(self) -> Iterator[None]:
        with self._told(), functions.explained(self.database):
            yield

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Lets a listener have the next message when this one has ended, and that is committed."""
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
                f"Message {self.id} of queue {self.queue!r}: attempt {self.attempt} is lost: it was ended, or its lock "
                "ran out and another consumer holds the message. Use a longer lock_seconds, or heartbeat()."
            )
            raise AttemptLost(message)


def _read(json_text: str | None) -> Any:
    return None if json_text is None else json.loads(json_text)


def _error(given: Any) -> functions.Error:
    if not issubclass(type(given), (str, BaseException)):
        message = f"error={quote(given)} is neither a text nor an exception."
        raise InvalidMessage(message)
    return functions.Error.of(given)
