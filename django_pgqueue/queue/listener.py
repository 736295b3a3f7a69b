"""``Queue.listen`` and ``Queue.alisten``: messages come to the consumer as soon as they are there."""

from __future__ import annotations

import asyncio
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from django_pgqueue.backend.lookup import pgqueue_backends
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.queue.receiver import Pump

if TYPE_CHECKING:
    from types import TracebackType

    from django_pgqueue.queue.message import ReceivedMessage
    from django_pgqueue.queue.queue import Queue

MAX_SLOTS = 10_000


class Listener:
    """An iterator over the messages of a queue, which waits for the next one.

    >>> with Queue("warehouse").listen(slots=4) as messages:  # doctest: +SKIP
    ...     for message in messages:
    ...         pack(message.content)
    ...         message.ack()
    """

    def __init__(self, queue: Queue, *, slots: int, lock_ms: int, notifications: bool | None) -> None:
        self._queue = queue
        self._items: SimpleQueue[Any] = SimpleQueue()
        self._pump = pump(queue, slots, lock_ms, notifications, self._items.put)
        # The thread refers to the pump and not to this object: code that drops the listener in the middle of a loop
        # closes it.
        weakref.finalize(self, self._pump.close)

    def __iter__(self) -> Listener:
        return self

    def __next__(self) -> ReceivedMessage:
        self._pump.start()
        while True:
            item = self._items.get()
            if item is None or isinstance(item, BaseException):
                self._items.put(None)  # for other threads that iterate, and for the next call
                raise StopIteration if item is None else item
            if self._pump.holds(item):
                return self._queue.received(item, listener=self._pump)

    def close(self) -> None:
        """Gives back the messages that have not ended, and ends the iteration, here and in other threads."""
        self._pump.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncListener:
    """A ``Listener`` for ``async for``.

    >>> async with Queue("warehouse").alisten(slots=4) as messages:  # doctest: +SKIP
    ...     async for message in messages:
    ...         await pack(message.content)
    ...         await message.aack()
    """

    def __init__(self, queue: Queue, *, slots: int, lock_ms: int, notifications: bool | None) -> None:
        self._queue = queue
        self._items: asyncio.Queue[Any] = asyncio.Queue()
        self._into_loop = IntoLoop(self._items)
        self._pump = pump(queue, slots, lock_ms, notifications, self._into_loop)
        weakref.finalize(self, self._pump.close)

    def __aiter__(self) -> AsyncListener:
        return self

    async def __anext__(self) -> ReceivedMessage:
        self._into_loop.loop = asyncio.get_running_loop()
        if self._pump.thread is None:
            await asyncio.to_thread(self._pump.start)
        while True:
            item = await self._items.get()
            if item is None or isinstance(item, BaseException):
                self._items.put_nowait(None)
                raise StopAsyncIteration if item is None else item
            if self._pump.holds(item):
                return self._queue.received(item, listener=self._pump)

    async def aclose(self) -> None:
        """Gives back the messages that have not ended, and ends the iteration."""
        self._into_loop.loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._pump.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class IntoLoop:
    """Puts what comes from the pump's thread into a queue of the event loop."""

    def __init__(self, items: asyncio.Queue[Any]) -> None:
        self.items = items
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, item: Any) -> None:
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.items.put_nowait, item)


def pump(queue: Queue, slots: int, lock_ms: int, notifications: bool | None, deliver: Any) -> Pump:
    if type(slots) is not int or not 1 <= slots <= MAX_SLOTS:
        message = f"slots={slots!r} is not a whole number from 1 to {MAX_SLOTS:,}."
        raise InvalidMessage(message)
    if notifications is None:  # as the workers of the database do
        known = [backend.settings for backend in pgqueue_backends().values()]
        notifications = all(settings.listen for settings in known if settings.database == queue.alias)
    return Pump(
        queue=queue.name, database=queue.alias, slots=slots, lock_ms=lock_ms, listen=notifications, deliver=deliver
    )
