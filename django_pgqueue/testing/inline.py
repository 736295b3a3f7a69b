"""Inline: runs jobs inside of their ``enqueue``."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

from asgiref.sync import sync_to_async

from django_pgqueue.backend.pgqueue import PgQueueBackend
from django_pgqueue.compat import DEFAULT_TASK_BACKEND_ALIAS, task_enqueued
from django_pgqueue.testing.drain import backend_of, drain

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTaskResult

_asked: ContextVar[set[str] | None] = ContextVar("pgqueue_inline", default=None)


class Inline:
    """Context manager in which enqueued jobs run at once."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        backend_of(self.backend)
        task_enqueued.connect(self._enqueued, weak=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task_enqueued.disconnect(self._enqueued)
        if kind is not None:
            return
        if self._error is not None:
            raise self._error
        run(self.backend)

    async def __aenter__(self) -> Self:
        return await sync_to_async(self.__enter__)()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await sync_to_async(self.__exit__)(kind)

    def _enqueued(self, sender: type[Any], task_result: AnyTaskResult, **_: Any) -> None:
        if not issubclass(sender, PgQueueBackend):
            return
        try:
            run(task_result.backend)
            task_result.refresh()
        except Exception as error:
            # The sender of the signal ignores errors of receivers, but the test must fail: __exit__ raises this one.
            self._error = self._error or error
            raise


def inline(*, backend: str = DEFAULT_TASK_BACKEND_ALIAS) -> Inline:
    """Runs jobs inside of their ``enqueue``, for tests in which the queue is in the way.

    ``enqueue`` writes the message as ever, and then runs all ready jobs, as ``drain`` does, inside of the caller's
    transaction.  It returns a result with the outcome: an exception of the task is in its ``errors`` and does not reach
    the caller.  Jobs that a job enqueues run after it.  Jobs and retries that are scheduled for later stay.  Jobs of
    ``enqueue_many`` or SQL stay until the next ``enqueue`` or the end of the block.

    >>> with inline():
    ...     assert send_receipt.enqueue(order.pk).status == "SUCCESSFUL"  # doctest: +SKIP
    """
    return Inline(backend)


def run(backend: str) -> None:
    """Runs the ready jobs of a backend.  A call inside of such a job only notes the backend for the outer call."""
    asked = _asked.get()
    if asked is not None:
        asked.add(backend)
        return
    asked = {backend}
    before = _asked.set(asked)
    try:
        while asked:
            drain(backend=asked.pop())
    finally:
        _asked.reset(before)
