"""The thread that does the database work of all async tasks of a process, one call at a time.

It stands in for asgiref's.  A call that goes on after its attempt has ended does not keep the others waiting: they go
on in another thread.  And it tells how long an attempt has waited behind the calls of others: that time is none of the
attempt's own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import SyncToAsync
from django.db import connections

from django_pgqueue.consumer.forks import has_forked
from django_pgqueue.worker.run.cut_sessions import Sessions, running, sessions_of_this_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from django_pgqueue.worker.run.execution import Execution

STUCK_SECONDS = 1.0
"""A call that nobody waits for any more may go on for this long before another thread takes its place."""
LOOK_AGAIN_SECONDS = 0.05
"""How soon the time of an attempt is looked at again that waits in line with next to no time left."""


class ThreadCall:
    """One call that a coroutine waits for."""

    __slots__ = ("abandoned_at", "attempt", "future", "work")

    def __init__(
        self, work: Callable[[], Any], attempt: Execution | None, cancelled: Callable[[ThreadCall], None]
    ) -> None:
        self.work = work
        self.attempt = attempt
        """None: it is the worker's own."""
        self.future = _Future(partial(cancelled, self))
        self.abandoned_at: float | None = None
        """When its coroutine, or the worker, gave it up while it ran."""

    def note(self, *, in_line: int = 0, runs: bool | None = None) -> None:
        if self.attempt is not None and self.attempt.waits is not None:
            self.attempt.waits.change(in_line=in_line, runs=runs)

    def run(self) -> None:
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001 -- for whoever waits
            self.future.set_exception(_for_a_future(error))
            del self  # the error's traceback has this frame: nothing of the call may live on with it
        else:
            self.future.set_result(result)


def _for_a_future(error: BaseException) -> BaseException:
    """asyncio's future takes no StopIteration, and who awaits it would wait for ever.  Python 3.12 does the same."""
    if not issubclass(type(error), StopIteration):
        return error
    raised = RuntimeError("the call of an async task raised StopIteration")
    raised.__cause__ = error
    return raised


class _Future(Future[Any]):
    def __init__(self, cancelled: Callable[[], None]) -> None:
        super().__init__()
        self._cancelled = cancelled

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        self._cancelled()
        return is_cancelled


class Waits:
    """How long one attempt has waited in line while none of its own calls ran."""

    __slots__ = ("_since", "_waited", "in_line", "runs")

    def __init__(self) -> None:
        self.in_line = 0
        self.runs = False
        self._waited = 0.0
        self._since = 0.0

    def change(self, *, in_line: int = 0, runs: bool | None = None) -> None:
        now = time.monotonic()
        self._waited, self._since = self.seconds(now), now
        self.in_line += in_line
        self.runs = self.runs if runs is None else runs

    def seconds(self, now: float) -> float:
        return self._waited + (now - self._since if self.in_line and not self.runs else 0.0)


class SharedThread(Executor):
    """Coroutines submit to it by ``sync_to_async``.  The process's thread asks for ``stuck`` calls in each turn."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.is_used = bool(getattr(pool, "_threads", True))
        """Whether there is such a thread."""
        self._pool = pool
        self._lock = threading.Lock()
        self._line: deque[ThreadCall] = deque()
        self._current: ThreadCall | None = None
        self._sessions: Sessions
        self._ended_at = 0.0
        """When its last call ended."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        call = ThreadCall(partial(fn, *args, **kwargs), cast("Execution | None", running.get()), self._cancelled)
        with self._lock:
            self.is_used = True
            self._line.append(call)
            call.note(in_line=1)
            try:
                self._pool.submit(self._run_next, self._pool)
            except RuntimeError:  # the system has no more threads: whoever gets this error is not to be called later
                self._line.remove(call)
                call.note(in_line=-1)
                raise
        return call.future

    def waited(self, attempt: Execution) -> float:
        """Returns for how many seconds the attempt has waited for calls of others."""
        with self._lock:
            return attempt.waits.seconds(time.monotonic()) if attempt.waits is not None else 0.0

    @contextmanager
    def waiting(self, attempt: Execution) -> Iterator[None]:
        """From here to its end, the attempt waits for others, too."""
        with self._lock:
            waits = attempt.waits = attempt.waits or Waits()
            waits.change(in_line=1)
        try:
            yield
        finally:
            with self._lock:
                waits.change(in_line=-1)

    def idle_seconds(self) -> float:
        """Returns for how long nobody has called it."""
        return 0.0 if self._current is not None or self._line else time.monotonic() - self._ended_at

    # Calls that go on

    def stuck(self, now: float) -> ThreadCall | None:
        """Returns the call that goes on though its attempt has ended, and keeps others waiting."""
        call = self._current
        return call if call is not None and now >= _stuck_at(call) else None

    def late(self) -> Execution | None:
        """Returns the attempt that has ended with its time, and whose call goes on."""
        call = self._current
        attempt = None if call is None or call.abandoned_at is None else call.attempt
        return attempt if attempt is not None and attempt.is_late and attempt.is_over else None

    def stuck_at(self) -> float:
        call = self._current
        return float("inf") if call is None else _stuck_at(call)

    def give_up(self, attempt: Execution) -> None:
        """Nobody waits for the call of this attempt any more."""
        with self._lock:
            if self._current is not None and self._current.attempt is attempt:
                self._current.abandoned_at = self._current.abandoned_at or time.monotonic()

    def replace(self, call: ThreadCall) -> Sessions | None:
        """Lets the calls behind ``call`` go on in another thread.  Returns the sessions of the one that it keeps; None:
        it has ended, or the system has no more threads, and a later turn tries again.
        """
        with self._lock:
            if self._current is not call:
                return None
            pool = ThreadPoolExecutor(max_workers=1)
            try:
                for _ in self._line:
                    pool.submit(self._run_next, pool)
            except RuntimeError:
                call.abandoned_at = time.monotonic()
                return None
            self._current = None
            call.note(runs=False)
            self._pool.shutdown(wait=False)
            self._pool = pool
            return self._sessions

    def _cancelled(self, call: ThreadCall) -> None:
        with self._lock:
            if call is self._current:
                call.abandoned_at = call.abandoned_at or time.monotonic()
            elif call in self._line:
                self._line.remove(call)
                call.note(in_line=-1)

    # What the thread does

    def _run_next(self, pool: ThreadPoolExecutor) -> None:
        with self._lock:
            if pool is not self._pool or not self._line:
                return
            call = self._line.popleft()
            call.note(in_line=-1, runs=True)
            if not call.future.set_running_or_notify_cancel():
                call.note(runs=False)
                return
            self._current, self._sessions = call, sessions_of_this_thread()
            self._sessions.are_shared = True
        call.run()
        if has_forked():  # the lock may be held by a thread that is not there, and the pool ends this process
            return
        with self._lock:
            if self._current is call:
                self._current, self._ended_at = None, time.monotonic()
                call.note(runs=False)
                return
        connections.close_all()  # another thread has its place


def _stuck_at(call: ThreadCall) -> float:
    is_over = call.attempt is not None and call.attempt.is_over
    return call.abandoned_at + STUCK_SECONDS if is_over and call.abandoned_at is not None else float("inf")


def shared_thread() -> SharedThread:
    """Returns that of this process.  From the first call on it is the one of ``sync_to_async``."""
    current: Any = SyncToAsync.single_thread_executor
    if isinstance(current, SharedThread):
        return current
    shared = SharedThread(current)
    SyncToAsync.single_thread_executor = shared  # type: ignore[assignment,unused-ignore]
    return shared


@asynccontextmanager
async def limited(seconds: float, waited: Callable[[], float]) -> AsyncIterator[asyncio.Timeout]:
    """``asyncio.timeout`` without the seconds that ``waited`` grows by."""
    loop = asyncio.get_running_loop()
    until, timers = loop.time() + seconds - waited(), []

    def expire() -> None:
        left = until + waited() - loop.time()
        if left > 0:
            timers.append(loop.call_later(max(left, LOOK_AGAIN_SECONDS), expire))
        else:
            limit.reschedule(loop.time())

    timers.append(loop.call_later(seconds, expire))
    try:
        async with asyncio.timeout(None) as limit:
            yield limit
    finally:
        timers[-1].cancel()
