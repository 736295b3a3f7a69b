"""The slots of a worker process: threads (``threads.py``) for plain tasks, an event loop (``event_loop.py``) for async
ones.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from django_pgqueue import traces
from django_pgqueue.exceptions import UnknownTask
from django_pgqueue.tasks import registry
from django_pgqueue.worker.run.aside import AsideThreads
from django_pgqueue.worker.run.connect_first import ConnectFirst
from django_pgqueue.worker.run.connections import clean_sessions
from django_pgqueue.worker.run.event_loop import EventLoop
from django_pgqueue.worker.run.execution import Execution
from django_pgqueue.worker.run.limits import Limits
from django_pgqueue.worker.run.marks import Marks
from django_pgqueue.worker.run.progress import SharedReports
from django_pgqueue.worker.run.shared_thread import shared_thread
from django_pgqueue.worker.run.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.consumer.wakeup import Wakeup
    from django_pgqueue.functions import Received
    from django_pgqueue.worker.run.clock import DatabaseClock
    from django_pgqueue.worker.run.outcome import EndedAttempt

logger = logging.getLogger("django_pgqueue.worker")


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
        self.connect_first = ConnectFirst()
        self.aside = AsideThreads(wakeup)
        self.threads = Threads(self)
        self.shared = shared_thread()
        self._event_loop = EventLoop(self)
        self._is_short = False
        self._left: list[EventLoop] = []
        """Event loops in which a task goes on after its time: nothing more begins there."""
        self.limits = Limits(self)
        self._execution = execution_class(backend)
        clean_sessions(backend.settings.database, pooled=not backend.settings.listen)

    def submit(self, messages: Iterable[Received]) -> None:
        plain: list[Received] = []
        coroutines: list[Received] = []
        for message in messages:
            (coroutines if is_async(message) else plain).append(message)
        self.threads.put(plain)
        if coroutines:
            self._loop_for_more().submit(coroutines)
        self.start()

    def start(self) -> None:
        """Starts what has to run.  The next turn tries again where the system has no more threads, or files."""
        try:
            self.threads.start()
            self._event_loop.start()
        except (RuntimeError, OSError) as error:
            if not self._is_short:
                logger.warning("a slot cannot start, and is tried again: %s", error)
            self._is_short = True
        else:
            self._is_short = False

    def resize(self, count: int) -> None:
        """Runs so many messages at a time from now on.  What runs ends; what is in the slots' line is begun."""
        self.threads.resize(count)
        self.count = count

    def _loop_for_more(self) -> EventLoop:
        if self._event_loop.is_left:
            self._left.append(self._event_loop)
            self._event_loop = EventLoop(self)
        return self._event_loop

    def loops(self) -> list[EventLoop]:
        return [*self._left, self._event_loop]

    def waiting(self) -> int:
        """Returns how many messages no slot has begun."""
        return self.threads.waiting() + sum(loop.waiting() for loop in self.loops())

    def take_unstarted(self) -> list[Received]:
        """Takes back what no slot has begun."""
        return [m for loop in self.loops() for m in loop.take_unstarted()] + self.threads.take_unstarted()

    def stop(self) -> None:
        self.threads.stop()
        for loop in self.loops():
            loop.stop()

    def join(self) -> None:
        for loop in self.loops():
            loop.join()

    def take_done(self) -> list[EndedAttempt]:
        ends = list(self.done.copy())  # before any of them is taken out, because there may be no memory for the list
        for _ in ends:
            self.done.popleft()
        return ends

    def cancel(self, ids: set[int]) -> None:
        """Asks running tasks to stop; async ones are cancelled."""
        ids = ids - self.reports.cancelled
        self.reports.cancelled |= ids
        for loop in self.loops():
            loop.cancel(ids)

    def execution(self, message: Received) -> Execution:
        return self._execution(
            message,
            backend=self.backend,
            clock=self.clock.of_a_job(),
            reports=self.reports,
            connect_first=self.connect_first,
        )

    def ended(self, end: EndedAttempt) -> None:
        """Called by the slots."""
        try:
            self.on_end(end)
        finally:  # a handler of the project's LOGGING may raise
            self.done.append(end)
            # The process's thread wants to know of the first end, to record it in time, and when few messages are left.
            if self.wakeup.is_waiting and (len(self.done) == 1 or self.threads.waiting() <= self.refill_below):
                self.wakeup.wake()

    def close_idle_connections(self) -> None:
        """Leaves their places to the process's thread, whose session is lost: a server that is full may have no other
        for it, and without it no slot gets another job.
        """
        self.threads.close_idle_connections()
        for loop in self.loops():
            loop.close_idle_connections()

    def seconds_without_a_turn(self, now: float) -> float:
        """Returns for how long an event loop with coroutines has made no turn."""
        return max((loop.seconds_without_a_turn(now) for loop in self.loops() if loop.runs), default=0.0)

    def announce(self, tell: Callable[[], None]) -> None:
        """Sends a signal that had to wait until the outcome was recorded."""
        self.aside.start(tell)


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
