"""The slots of a worker process: threads for plain tasks, and an event loop (``event_loop.py``) for async ones."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from django.db import connections

from django_pgqueue import traces
from django_pgqueue.backend.signal_cache import cache_receivers
from django_pgqueue.backend.signals import NAMES
from django_pgqueue.consumer.forks import forked_children_end_here
from django_pgqueue.exceptions import SlotDied, UnknownTask
from django_pgqueue.logs import log_trouble
from django_pgqueue.tasks import registry
from django_pgqueue.worker.run.connections import (
    clean_sessions,
    close_idle_connections,
    has_connected,
    leave_connections_clean,
)
from django_pgqueue.worker.run.cut_sessions import (
    Sessions,
    cancel_statement,
    cut,
    sessions_of_this_thread,
    waits_for_statement,
)
from django_pgqueue.worker.run.event_loop import EventLoop
from django_pgqueue.worker.run.execution import Execution
from django_pgqueue.worker.run.marks import Marks
from django_pgqueue.worker.run.progress import SharedReports
from django_pgqueue.worker.run.watchdog import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.consumer.wakeup import Wakeup
    from django_pgqueue.functions import Received
    from django_pgqueue.worker.run.clock import DatabaseClock
    from django_pgqueue.worker.run.marks import Mark
    from django_pgqueue.worker.run.outcome import EndedAttempt


logger = logging.getLogger("django_pgqueue.worker")


class Slot:
    """A thread that runs one attempt after the other."""

    __slots__ = ("execution", "is_replaced", "name", "reconnects", "sessions", "thread", "timeout")

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread: threading.Thread
        self.execution: Execution | None = None
        """The attempt that it runs now."""
        self.timeout: float | None = None
        """The seconds that the attempt may take."""
        self.reconnects = 0
        self.is_replaced = False
        """Its thread goes on after its time: another thread has the slot."""
        self.sessions: Sessions


@dataclass(slots=True)
class Timed:
    """An attempt whose time is limited."""

    until: float
    """The end of its time, by the monotonic clock."""
    where: Slot | EventLoop
    late_seconds: float = 0.0
    """How long it may clean up after that."""


@dataclass(slots=True)
class Aside:
    """Work in a thread of its own.  Whoever takes it out of ``_aside`` makes its end."""

    until: float
    execution: Execution | None
    """The attempt that the work ends."""


LOOP = "the event loop"
MAX_ASIDE_SECONDS = 30.0
"""How long receivers and backoffs of a project may take in a thread of their own.  After that the attempt ends without
them."""
MAX_LATE_SECONDS = 5.0
"""An async task is cancelled when its time is up.  After that it may clean up for this long; then the process's thread
ends its attempt."""


class Slots:
    """Runs messages in the order in which they come.  Ended attempts wait in ``done`` until the process's thread takes
    them.

    The process's thread calls it in each turn, and after a claim.  The slots and event loops call only the methods that
    say so.
    """

    def __init__(
        self,
        count: int,
        *,
        backend: PgQueueBackend,
        clock: DatabaseClock,
        wakeup: Wakeup,
        on_end: Callable[[EndedAttempt], None],
        marks: Marks | None = None,
        idle_seconds: float,
    ) -> None:
        """``on_end`` gets each ended attempt, in the thread that has ended it.  ``idle_seconds``: a slot without a job
        for this long closes its connections.
        """
        self.count = count
        self.marks = marks or Marks(count)
        self.backend = backend
        self.clock = clock
        self.wakeup = wakeup
        self.on_end = on_end
        self.idle_seconds = idle_seconds
        self.reports = SharedReports()
        self.done: deque[EndedAttempt] = deque()
        self.refill_below = 0
        self.reconnects = 0
        """How often the database has come back: tasks get no connections from before."""
        self._waiting: SimpleQueue[Received | None] = SimpleQueue()
        self._timed: dict[Execution, Timed] = {}
        self._aside: dict[threading.Thread, Aside] = {}
        self._slots: list[Slot] = []
        self._without_thread: list[str] = []
        """Names of slots whose threads go on after their time, or have died."""
        self._event_loop = EventLoop(self)
        self._left: list[EventLoop] = []
        """Event loops in which a task goes on after its time: nothing more begins there."""
        self._execution = execution_class(backend)
        clean_sessions(backend.settings.database, pooled=not backend.settings.listen)

    def submit(self, messages: Iterable[Received]) -> None:
        coroutines = []
        for message in messages:
            if is_async(message):
                coroutines.append(message)
            else:
                self._waiting.put(message)
        if coroutines:
            self._loop_for_more().submit(coroutines)
        if not (self._slots or self._without_thread or self._waiting.empty()):
            self._start_threads()
        while self._without_thread:
            self._start_thread(self._without_thread.pop())

    def _loop_for_more(self) -> EventLoop:
        if self._event_loop.is_left:
            self._left.append(self._event_loop)
            self._event_loop = EventLoop(self)
        return self._event_loop

    def _loops(self) -> list[EventLoop]:
        return [*self._left, self._event_loop]

    def waiting(self) -> int:
        """Returns how many messages no slot has begun."""
        return self._waiting.qsize() + sum(loop.waiting() for loop in self._loops())

    def take_unstarted(self) -> list[Received]:
        """Takes back what no slot has begun."""
        unstarted = [message for loop in self._loops() for message in loop.take_unstarted()]
        while True:
            try:
                message = self._waiting.get_nowait()
            except Empty:
                return unstarted
            if message is not None:
                unstarted.append(message)

    def stop(self) -> None:
        for _ in self._slots:
            self._waiting.put(None)
        for loop in self._loops():
            loop.stop()

    def take_done(self) -> list[EndedAttempt]:
        return [self.done.popleft() for _ in range(len(self.done))]

    def cancel(self, ids: set[int]) -> None:
        """Asks running tasks to stop; async ones are cancelled."""
        ids = ids - self.reports.cancelled
        self.reports.cancelled |= ids
        for loop in self._loops():
            loop.cancel(ids)

    def execution(self, message: Received) -> Execution:
        return self._execution(message, backend=self.backend, clock=self.clock, reports=self.reports)

    def ended(self, end: EndedAttempt) -> None:
        """Called by the slots."""
        try:
            self.on_end(end)
        finally:  # a handler of the project's LOGGING may raise
            self.done.append(end)
            # The process's thread wants to know of the first end, to record it in time, and when few messages are left.
            if self.wakeup.is_waiting and (len(self.done) == 1 or self._waiting.qsize() <= self.refill_below):
                self.wakeup.wake()

    def _start_threads(self) -> None:
        cache_receivers(NAMES)
        for number in range(1, self.count + 1):
            self._start_thread(f"slot-{number}")

    def _start_thread(self, name: str) -> None:
        slot = Slot(name)
        slot.thread = threading.Thread(target=self._work, args=[slot], name=name, daemon=True)
        self._slots.append(slot)
        slot.thread.start()

    def _work(self, slot: Slot) -> None:
        """Runs messages until the worker ends: an error here comes from no task, and is logged."""
        slot.sessions = sessions_of_this_thread()
        with self.marks.mark() as mark:
            while not slot.is_replaced:
                try:
                    if (message := self._next()) is None:
                        break
                    self._attempt(message, slot, mark)
                except BaseException as error:  # noqa: BLE001
                    log_trouble("The code around a task failed; its slot goes on.", error)
        connections.close_all()

    def _attempt(self, message: Received, slot: Slot, mark: Mark) -> None:
        """Runs one message, which ends exactly once, whatever raises."""
        mark.begin(message)
        execution = slot.execution = self.execution(message)
        try:
            end = self._run(execution, slot)
        except BaseException as error:  # noqa: BLE001
            end = execution.broken(error)
        try:
            if has_connected():
                leave_connections_clean(message)
        finally:
            slot.execution = None
            mark.end(message)
            # The thread that takes it out ends the attempt: this one, or the process's when the time is up.
            if slot.timeout is not None and self._timed.pop(execution, None) is None:
                slot.is_replaced = True
            else:
                self.ended(end)

    def _run(self, execution: Execution, slot: Slot) -> EndedAttempt:
        slot.timeout = None
        if slot.reconnects != self.reconnects:
            slot.reconnects = self.reconnects
            connections.close_all()
        message = execution.message
        if message.id in self.reports.cancelled:
            return execution.cancelled_before_it_began()
        slot.timeout = timeout_seconds(message)
        if slot.timeout is not None:
            self._timed[execution] = Timed(time.monotonic() + slot.timeout, slot)
        # A context of its own: what a task puts into context variables is not for the next one.
        with forked_children_end_here:
            return copy_context().run(execution.run)

    def _next(self) -> Received | None:
        try:
            return self._waiting.get(timeout=self.idle_seconds)
        except Empty:
            close_idle_connections()
            return self._waiting.get()

    def time_out(self, now: float) -> list[Received]:
        """Ends the attempts whose time is up, and returns their messages.  Their threads and event loops go on: the
        process has to be replaced.  If it takes more messages all the same, others run them.
        """
        self._leave_aside(now)
        messages = []
        for execution, timed in list(self._timed.items()):
            if now >= timed.until and timed.late_seconds:
                timed.until, timed.late_seconds, execution.is_late = now + timed.late_seconds, 0.0, True
                if waits_for_statement(execution):
                    self._do_aside(partial(cancel_statement, execution, execution.message))
            elif now >= timed.until and self._timed.pop(execution, None) is not None:
                execution.is_over = True  # before its sessions are cut, which raises in the task
                self._do_aside(partial(self._time_out, execution, timed.where), execution)
                if isinstance(timed.where, Slot):
                    self._slots.remove(timed.where)
                    self._without_thread.append(timed.where.name)
                else:
                    timed.where.is_left = True
                messages.append(execution.message)
        return messages

    def _time_out(self, execution: Execution, where: Slot | EventLoop) -> None:
        # Its sessions end first: the next attempt would wait for their locks.  Those of coroutines stay: all coroutines
        # share them.
        ends_sessions = partial(cut, where.sessions, execution.message) if isinstance(where, Slot) else None
        try:
            end = execution.timed_out(ends_sessions)
        except BaseException as error:  # noqa: BLE001
            end = execution.broken(error)
        if self._aside.pop(threading.current_thread(), None) is not None:
            self.ended(end)

    def _leave_aside(self, now: float) -> None:
        """Gives up what does not return, so that no message is held for ever, and the process can be replaced."""
        for thread, aside in list(self._aside.items()):
            if now < aside.until or self._aside.pop(thread, None) is None:
                continue
            if aside.execution is not None:
                self.ended(aside.execution.unended(MAX_ASIDE_SECONDS))
            else:
                logger.error(
                    "not waited for: a receiver of a signal has not returned for %g seconds", MAX_ASIDE_SECONDS
                )

    def give_up(self, now: float, *, patience_seconds: float) -> None:
        """Ends the attempts whose event loop another task blocks after its time.  They do not count."""
        for loop in self._loops():
            if loop.is_left and loop.seconds_without_a_turn(now) > patience_seconds:
                for execution, timed in list(self._timed.items()):
                    if timed.where is loop and self._timed.pop(execution, None) is not None:
                        message = execution.message
                        logger.warning(
                            "gave up id=%s task=%s attempt=%s, without counting the attempt: another task blocks the "
                            "event loop",
                            message.id, message.task, message.attempt,
                        )  # fmt: skip
                        self.ended(execution.deferred_uncharged())

    def bury(self) -> list[str]:
        """Ends the attempts whose thread or event loop has died.  Returns the names of the dead ones."""
        slots = [slot for slot in self._slots if not is_alive(slot.thread)]
        loops = [loop for loop in self._loops() if loop.is_dead()]
        for slot in slots:
            self._slots.remove(slot)
            self._without_thread.append(slot.name)
            execution = slot.execution
            if execution is not None and (slot.timeout is None or self._timed.pop(execution, None) is not None):
                self._end_dead(execution, slot.name)
        for loop in loops:
            for message in loop.bury():
                self._end_dead(self.execution(message), LOOP)
            for execution, timed in list(self._timed.items()):
                if timed.where is loop and self._timed.pop(execution, None) is not None:
                    self._end_dead(execution, LOOP)
        return [*(slot.name for slot in slots), *(LOOP for _ in loops)]

    def _end_dead(self, execution: Execution, where: str) -> None:
        end = execution.broken(
            SlotDied(f"{where} has ended before the task. The task may have done a part of its work.")
        )
        self._do_aside(partial(self.ended, end))

    def seconds_without_a_turn(self, now: float) -> float:
        """Returns for how long an event loop with coroutines has made no turn."""
        return max((loop.seconds_without_a_turn(now) for loop in self._loops() if loop.runs), default=0.0)

    def begin_in(self, loop: EventLoop, execution: Execution) -> None:
        """Called by the event loops.  An attempt without a timeout may still be given up."""
        seconds = timeout_seconds(execution.message)
        until = float("inf") if seconds is None else time.monotonic() + seconds
        self._timed[execution] = Timed(until, loop, MAX_LATE_SECONDS)

    def ended_in_time(self, execution: Execution, end: EndedAttempt) -> None:
        """Called by the event loops.  The thread that takes the execution out of ``_timed`` ends the attempt."""
        if self._timed.pop(execution, None) is not None:
            self.ended(end)

    def announce(self, tell: Callable[[], None]) -> None:
        """Sends a signal that had to wait until the outcome was recorded."""
        self._do_aside(tell)

    def busy_aside(self) -> bool:
        return bool(self._aside)

    def _do_aside(self, do: Callable[[], None], execution: Execution | None = None) -> None:
        """Calls ``do``, which ends ``execution``, in a thread of its own: receivers and backoffs of a project may take
        their time, and the process's thread has none.  It is rare.
        """

        def run() -> None:
            try:
                with forked_children_end_here:
                    copy_context().run(do)
            finally:
                connections.close_all()
                self._aside.pop(threading.current_thread(), None)
                self.wakeup.wake()

        thread = threading.Thread(target=run, name="aside", daemon=True)
        self._aside[thread] = Aside(time.monotonic() + MAX_ASIDE_SECONDS, execution)
        thread.start()

    def next_timeout(self) -> float:
        """Returns when the next attempt's time is up, by the monotonic clock."""
        limited: list[Timed | Aside] = [*list(self._timed.values()), *list(self._aside.values())]
        return min((one.until for one in limited), default=float("inf"))


def execution_class(backend: PgQueueBackend) -> type[Execution]:
    """Chooses once: without traces an attempt costs what it did before there were any."""
    if not backend.settings.traces or not traces.is_installed():
        return Execution
    from django_pgqueue.worker.run.traced import TracedExecution  # noqa: PLC0415 -- OpenTelemetry, when it is asked for

    return TracedExecution


def is_async(message: Received) -> bool:
    try:
        return registry.is_async(message.task or "")
    except UnknownTask:  # a slot will find out, and record it
        return False


def timeout_seconds(message: Received) -> float | None:
    try:
        return registry.timeout_seconds(message.task or "")
    except UnknownTask:
        return None
