"""Jobs that run where they are enqueued."""

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
    """While it is entered, what is enqueued runs at once."""

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
            # Who sends the signal goes on whatever its receivers do; the test shall hear of it.
            self._error = self._error or error
            raise


def inline(*, backend: str = DEFAULT_TASK_BACKEND_ALIAS) -> Inline:
    """Runs jobs where they are enqueued, for tests in which the queue is in the way.

    ``enqueue`` writes the message as ever, and then runs what is ready, as ``drain`` does: here and now, inside of the
    caller's transaction.  The result that it returns has the outcome: an exception of the task is in its ``errors`` and
    does not reach the caller.  What a job enqueues runs after it.  What is scheduled for later stays, also a retry; so
    does, until the next ``enqueue`` or the end of the block, what ``enqueue_many`` or SQL put into the queue.

    >>> with inline():
    ...     assert send_receipt.enqueue(order.pk).status == "SUCCESSFUL"  # doctest: +SKIP
    """
    return Inline(backend)


def run(backend: str) -> None:
    """Runs what is ready; called by a job that runs like this, its words are only taken note of."""
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
