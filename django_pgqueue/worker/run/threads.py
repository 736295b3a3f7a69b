"""The slots for plain tasks: threads, each of which runs one attempt after the other."""

from __future__ import annotations

import sys
import threading
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from django.db import connections

from django_pgqueue.backend.signal_cache import cache_receivers
from django_pgqueue.backend.signals import NAMES
from django_pgqueue.consumer.forks import forked_children_end_here
from django_pgqueue.logs import log_trouble, own_scope
from django_pgqueue.worker.run.connections import (
    close_idle_connections,
    close_stale_connections,
    has_connected,
    leave_connections_clean,
)
from django_pgqueue.worker.run.cut_sessions import Sessions, sessions_of_this_thread
from django_pgqueue.worker.run.watchdog import is_alive

if TYPE_CHECKING:
    from contextvars import Context

    from django_pgqueue.functions import Received
    from django_pgqueue.worker.run.execution import Execution
    from django_pgqueue.worker.run.marks import Mark
    from django_pgqueue.worker.run.outcome import EndedAttempt
    from django_pgqueue.worker.run.slots import Slots


class Slot:
    """A thread that runs one attempt after the other."""

    __slots__ = ("execution", "is_limited", "is_replaced", "name", "reconnects", "sessions", "thread", "was_idle")

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread: threading.Thread
        self.execution: Execution | None = None
        """The attempt that it runs now."""
        self.is_limited = False
        """The attempt has a timeout."""
        self.reconnects = 0
        self.was_idle = False
        """It has had no job for some seconds."""
        self.is_replaced = False
        """Its thread goes on after its time: another thread has the slot."""
        self.sessions: Sessions


class Threads:
    """They start when the first plain task comes."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._waiting: SimpleQueue[Received | None] = SimpleQueue()
        self._all: list[Slot] = []
        self._without_thread: list[str] = []
        """Names of slots whose threads go on after their time, or have died."""
        self._too_many = 0
        """So many threads have to leave, when they have ended what they run."""
        self._leaving = threading.Lock()
        self._stops = False

    # What the process's thread calls

    def put(self, messages: list[Received]) -> None:
        for message in messages:
            self._waiting.put(message)

    def start(self) -> None:
        """Starts the threads, and those that have to be replaced, if there is something to do."""
        if self._waiting.empty():
            return
        if not (self._all or self._without_thread):
            cache_receivers(NAMES)
            self._without_thread = [f"slot-{number}" for number in range(self.slots.count, 0, -1)]
        while self._without_thread:
            self._start(self._without_thread.pop())

    def waiting(self) -> int:
        """Returns how many messages no thread has begun."""
        return self._waiting.qsize()

    def take_unstarted(self) -> list[Received]:
        unstarted: list[Received] = []
        while True:
            try:
                message = self._waiting.get_nowait()
            except Empty:
                return unstarted
            if message is not None:
                unstarted.append(message)

    def resize(self, count: int) -> None:
        """Changes the number of slots, which ``slots.count`` still has."""
        if not (self._all or self._without_thread):
            return  # they start with the number of that time
        more = count - self.slots.count
        with self._leaving:
            stays = min(self._too_many, max(0, more))
            self._too_many += max(0, -more) - stays
            wake = self._too_many
        self._without_thread += [f"slot-{self.slots.count + n}" for n in range(1, more - stays + 1)]
        for _ in range(wake):
            self._waiting.put(None)

    def close_idle_connections(self) -> None:
        for slot in list(self._all):
            if slot.execution is None:
                self._waiting.put(None)

    def _is_one_too_many(self, slot: Slot) -> bool:
        """Called by the thread of a slot between two messages."""
        with self._leaving:
            if not self._too_many:
                return False
            self._too_many -= 1
            self._all.remove(slot)
            return True

    def stop(self) -> None:
        self._stops = True
        for _ in self._all:
            self._waiting.put(None)

    def replace(self, slot: Slot) -> None:
        """Gives the slot another thread when the next message comes."""
        self._all.remove(slot)
        self._without_thread.append(slot.name)

    def dead(self) -> list[Slot]:
        return [slot for slot in self._all if not is_alive(slot.thread)]

    def _start(self, name: str) -> None:
        slot = Slot(name)
        slot.thread = threading.Thread(target=self._work, args=[slot], name=name, daemon=True)
        self._all.append(slot)
        try:
            slot.thread.start()
        except RuntimeError:
            self.replace(slot)
            raise

    # What a thread does

    def _work(self, slot: Slot) -> None:
        """Runs messages until the worker ends: an error here comes from no task, and is logged."""
        slot.sessions = sessions_of_this_thread()
        with self.slots.marks.mark() as mark:
            while not slot.is_replaced:
                try:
                    if self._too_many and self._is_one_too_many(slot):
                        break
                    if (message := self._next(slot)) is None:
                        if self._stops:
                            break
                        connections.close_all()
                        continue
                    self._attempt(message, slot, mark)
                except BaseException as error:  # noqa: BLE001
                    log_trouble("The code around a task failed; its slot goes on.", error)
        connections.close_all()

    def _attempt(self, message: Received, slot: Slot, mark: Mark) -> None:
        """Runs one message, which ends exactly once, whatever raises."""
        mark.begin(message)
        execution = slot.execution = self.slots.execution(message)
        # A context of its own: what a task puts into context variables is not for the next one, but for its log line.
        context = copy_context()
        try:
            end = self._run(execution, slot, context)
        except BaseException as error:  # noqa: BLE001
            end = execution.broken(error)
        try:
            if has_connected():
                leave_connections_clean(message)
        finally:
            slot.execution = None
            mark.end(message)
            if not slot.is_limited:
                context.run(self.slots.ended, end)
            elif not context.run(self.slots.limits.ended_in_time, execution, end):
                slot.is_replaced = True

    def _run(self, execution: Execution, slot: Slot, context: Context) -> EndedAttempt:
        slot.is_limited = False
        if slot.reconnects != self.slots.reconnects:
            slot.reconnects = self.slots.reconnects
            connections.close_all()
        elif slot.was_idle:
            close_stale_connections()
        slot.was_idle = False
        if execution.message.id in self.slots.reports.cancelled:
            return execution.cancelled_before_it_began()
        slot.is_limited = self.slots.limits.begin_in(slot, execution)
        if "sentry_sdk" in sys.modules:
            context.run(own_scope)
        with forked_children_end_here:
            return context.run(execution.run)

    def _next(self, slot: Slot) -> Received | None:
        try:
            return self._waiting.get(timeout=self.slots.idle_seconds)
        except Empty:
            slot.was_idle = True
            close_idle_connections()
            return self._waiting.get()
