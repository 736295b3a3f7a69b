"""The slots for async tasks: one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import decimal
import threading
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections

from django_pgqueue.consumer.forks import shared_loops
from django_pgqueue.logs import log_trouble, own_scope
from django_pgqueue.worker.run.connections import (
    close_idle_connections,
    close_lost_connections,
    close_stale_connections,
    leave_connections_clean,
)
from django_pgqueue.worker.run.cut_sessions import running
from django_pgqueue.worker.run.shared_thread import Waits
from django_pgqueue.worker.run.watchdog import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.functions import Received
    from django_pgqueue.worker.run.execution import Execution
    from django_pgqueue.worker.run.outcome import EndedAttempt
    from django_pgqueue.worker.run.slots import Slots


CLOSE_SECONDS = 1.0
"""The longest wait of a process that ends for its loop, whose last cleanings may be behind a call that hangs."""


class EventLoop:
    """An event loop, made with the slots.  It starts, with its thread, when the first async task comes."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread
        self._waiting: deque[Received] = deque()
        self._running: dict[asyncio.Task[None], Received | None] = {}
        """The message that each coroutine has to end; None: it has ended."""
        self._begun: dict[asyncio.Task[None] | None, Execution] = {}
        self._cleaning: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None
        self.is_left = False
        """A task in it goes on after its time: the next tasks have another loop."""
        self._asked: float | None = None
        """When the loop was asked for a turn that it has not made yet."""
        self._stopped = False
        self._reconnects = 0

    def submit(self, messages: list[Received]) -> None:
        self._waiting.extend(messages)
        self._ask(self._start_waiting)

    def start(self) -> None:
        """Starts it, if a message waits for that."""
        if self._loop is not None or not self._waiting:
            return
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, args=[loop], name="coroutines", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            loop.close()
            raise
        shared_loops.add(loop)
        self._loop = loop
        self._ask(self._start_waiting)

    def waiting(self) -> int:
        return len(self._waiting)

    def take_unstarted(self) -> list[Received]:
        unstarted = []
        with contextlib.suppress(IndexError):  # the loop takes from it at the same time
            while True:
                unstarted.append(self._waiting.popleft())
        return unstarted

    def cancel(self, ids: set[int]) -> None:
        self._ask(self._cancel, ids)

    def close_idle_connections(self) -> None:
        self._ask(self._close_if_idle, connections.close_all)

    def _cancel(self, ids: set[int]) -> None:
        # A coroutine that is cancelled before its first step never takes it: the end of its message would be lost.  So
        # would that of one that only waits for the receivers of its signal.
        for task, execution in self._begun.items():
            if task is not None and execution.message.id in ids and not execution.is_over:
                task.cancel()

    def seconds_without_a_turn(self, now: float) -> float:
        asked = self._asked
        if asked is None and self._loop is not None and not self._stopped:
            self._asked = asked = now
            self._ask(self._answer)
        return 0.0 if asked is None else now - asked

    def _answer(self) -> None:
        self._asked = None

    def stop(self) -> None:
        self._stopped = True
        if self._loop is not None:
            self._ask(self._loop.stop)

    def join(self) -> None:
        """Waits until the stopped loop is closed, unless a task goes on in it."""
        self.slots.limits.abandon(self)
        if self._loop is not None and not self._running:
            self._thread.join(CLOSE_SECONDS)
        for task in list(self._running):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 -- the log names its message

    def is_dead(self) -> bool:
        """Whether nothing in it goes on, because a task has closed the loop or ended its thread."""
        if self._loop is None or self._stopped:
            return False
        return self._loop.is_closed() or not is_alive(self._thread)

    def bury(self) -> list[Received]:
        """Gives up a dead loop.  Returns the messages that had not begun, though they have a coroutine."""
        self.is_left = self._stopped = True
        begun = {execution.message.id for execution in list(self._begun.values())}
        return [message for message in list(self._running.values()) if message is not None and message.id not in begun]

    @property
    def runs(self) -> bool:
        return bool(self._running)

    def _ask(self, what: Callable[..., object], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the watchdog will see it
            if self._loop is not None:
                self._loop.call_soon_threadsafe(what, *args)

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        while not (self._stopped or loop.is_closed()):
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001
                # SystemExit in a coroutine that a task has started besides itself: asyncio lets go of the whole loop.
                log_trouble("A coroutine that an async task started ended with a BaseException.", error)
        if self.slots.shared.is_used and not self.is_left:  # the next loop's tasks use the same thread
            self.slots.shared.submit(connections.close_all)
        if not (self._running or loop.is_closed()):
            self._close(loop)

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._cleaning:
            cleaned = loop.create_task(asyncio.wait(list(self._cleaning)))
            while not (cleaned.done() or loop.is_closed()):
                with contextlib.suppress(RuntimeError):  # an order to stop that the loop had not yet read
                    loop.run_until_complete(cleaned)
        if not asyncio.all_tasks(loop):  # a task may have started others besides itself
            loop.close()

    def _start_waiting(self) -> None:
        while len(self._running) < self.slots.count:
            try:
                message = self._waiting.popleft()
            except IndexError:
                return
            task = asyncio.get_running_loop().create_task(self._run(message))
            self._running[task] = message
            task.add_done_callback(self._ended)

    async def _run(self, message: Received) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- it runs in one
        execution = self.slots.execution(message)
        running.set(execution)
        execution.waits = Waits()
        own_scope()
        # It is changed in place, and the main thread's is the one that the contexts of all tasks are copied with.
        decimal.setcontext(decimal.getcontext().copy())
        self.slots.limits.begin_in(self, execution)
        with self.slots.marks.mark() as mark:
            mark.begin(message)
            try:
                end = await self._attempt(execution, task)
            except BaseException as error:  # noqa: BLE001
                end = execution.broken(error)
            mark.end(message)
        self._begun.pop(task, None)
        self._running[task] = None
        self.slots.limits.ended_in_time(execution, end)
        # One thread does the database work of all async tasks, in the order in which it was asked for: this cleaning
        # comes before whatever the next task wants.  No coroutine waits for it.
        if self.slots.shared.is_used:
            self._clean(leave_connections_clean, message, shared=bool(self._begun))

    async def _attempt(self, execution: Execution, task: asyncio.Task[None]) -> EndedAttempt:
        if self._reconnects != self.slots.reconnects:
            self._reconnects = self.slots.reconnects
            self._do_first(connections.close_all)
        elif self.slots.shared.idle_seconds() >= self.slots.idle_seconds:
            # The server ends sessions that are idle.  What is only too old may have a cursor of a task that runs.
            self._do_first(close_lost_connections if self._begun else close_stale_connections)
        if execution.message.id in self.slots.reports.cancelled:
            return execution.cancelled_before_it_began()
        self._begun[task] = execution
        return await execution.arun()

    def _do_first(self, what: Callable[[], None]) -> None:
        """In the shared thread, before the calls of a task that begins.  It does not wait for the calls of others."""
        if self.slots.shared.is_used:
            Context().run(self.slots.shared.submit, what)

    def _ended(self, task: asyncio.Task[None]) -> None:
        message = self._running.pop(task)
        self._start_waiting()
        if not self._running and self.is_left:
            self.stop()
        elif not self._running:
            if self._idle is not None:
                self._idle.cancel()
            self._idle = asyncio.get_running_loop().call_later(self.slots.idle_seconds, self._close_if_idle)
        if message is not None:  # a task cancelled all that the loop had, and this had not begun
            self.slots.ended(self.slots.execution(message).broken(_why(task)))

    def _close_if_idle(self, close: Callable[[], None] | None = None) -> None:
        if not self._running and self.slots.shared.is_used:
            self._clean(close or close_idle_connections)

    def _clean(self, how: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        cleaning = asyncio.create_task(sync_to_async(how)(*args, **kwargs))
        self._cleaning.add(cleaning)
        cleaning.add_done_callback(self._cleaning.discard)


def _why(task: asyncio.Task[None]) -> BaseException:
    error = None if task.cancelled() else task.exception()
    return error or asyncio.CancelledError("Its coroutine was cancelled before it began.")
