"""Ends attempts from outside of their slot: their time is up, a task blocks their event loop, or the slot has died."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from django_pgqueue.exceptions import SlotDied, UnknownTask
from django_pgqueue.tasks import registry
from django_pgqueue.worker.run import aside
from django_pgqueue.worker.run.cut_sessions import cancel_statement, cut, waits_for_statement
from django_pgqueue.worker.run.shared_thread import LOOK_AGAIN_SECONDS
from django_pgqueue.worker.run.threads import Slot

if TYPE_CHECKING:
    from django_pgqueue.functions import Received
    from django_pgqueue.worker.run.event_loop import EventLoop
    from django_pgqueue.worker.run.execution import Execution
    from django_pgqueue.worker.run.outcome import EndedAttempt
    from django_pgqueue.worker.run.slots import Slots

logger = logging.getLogger("django_pgqueue.worker")


@dataclass(slots=True)
class Timed:
    """An attempt whose time is limited."""

    until: float
    """The end of its time, by the monotonic clock."""
    where: Slot | EventLoop
    late_seconds: float = 0.0
    """How long it may clean up after that."""


LOOP = "the event loop"
MAX_LATE_SECONDS = 5.0
"""An async task is cancelled when its time is up.  After that it may clean up for this long; then the process's thread
ends its attempt."""


class Limits:
    """The process's thread calls it in each turn, except where a method says otherwise."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._timed: dict[Execution, Timed] = {}
        """The attempts that may have to be ended from outside.  Whoever takes one out ends it."""

    def begin_in(self, where: Slot | EventLoop, execution: Execution) -> bool:
        """Called by the slots and event loops.  Returns whether the attempt may be ended from outside: a coroutine
        without a timeout may still be given up.
        """
        seconds = timeout_seconds(execution.message)
        is_limited = seconds is not None or not isinstance(where, Slot)
        if is_limited:
            until = float("inf") if seconds is None else time.monotonic() + seconds
            late_seconds = 0.0 if isinstance(where, Slot) else MAX_LATE_SECONDS
            self._timed[execution] = Timed(until, where, late_seconds)
        return is_limited

    def ended_in_time(self, execution: Execution, end: EndedAttempt) -> bool:
        """Called by the slots and event loops for an attempt that may be ended from outside.  Returns whether this end
        counts.
        """
        is_in_time = self._timed.pop(execution, None) is not None
        if is_in_time:
            self.slots.ended(end)
        return is_in_time

    def abandon(self, where: EventLoop) -> None:
        """Called when the process leaves.  Python closes what is left of a coroutine at its own end, if not before, and
        that is no end of the attempt: others have taken it over.
        """
        for execution, timed in list(self._timed.items()):
            if timed.where is where and self._timed.pop(execution, None) is not None:
                execution.is_over = True

    def time_out(self, now: float) -> list[Received]:
        """Ends the attempts whose time is up, and returns their messages.  Their threads and event loops go on: the
        process has to be replaced.  If it takes more messages all the same, others run them.
        """
        self.slots.aside.give_up(now, lambda it: self.slots.ended(it.unended(aside.MAX_ASIDE_SECONDS)))
        self._cancel_what_goes_on()
        messages = self._free_the_shared_thread(now)
        for execution, timed in list(self._timed.items()):
            if now < timed.until + execution.waited():
                continue
            if timed.late_seconds:
                timed.until = now - execution.waited() + timed.late_seconds
                timed.late_seconds, execution.is_late = 0.0, True
                self._cancel_statement(execution)
            elif self._timed.pop(execution, None) is not None:
                execution.is_over = True  # before its sessions are cut, which raises in the task
                self.slots.aside.start(partial(self._time_out, execution, timed.where), execution)
                if isinstance(timed.where, Slot):
                    self.slots.threads.replace(timed.where)
                else:
                    timed.where.is_left = True
                    self.slots.shared.give_up(execution)
                messages.append(execution.message)
        return messages

    def _cancel_what_goes_on(self) -> None:
        """Cancels the statement of an async task whose coroutine ended with its time before this thread looked."""
        if (late := self.slots.shared.late()) is not None:
            self._cancel_statement(late)

    def _cancel_statement(self, execution: Execution) -> None:
        if waits_for_statement(execution) and not execution.is_cut:
            execution.is_cut = True
            self.slots.aside.start(partial(cancel_statement, execution, execution.message))

    def _free_the_shared_thread(self, now: float) -> list[Received]:
        """Returns the message of an ended async task, whose call has gone on in the thread that others wait for."""
        call = self.slots.shared.stuck(now)
        if call is None or call.attempt is None or (sessions := self.slots.shared.replace(call)) is None:
            return []
        self.slots.aside.start(partial(cut, sessions, call.attempt.message))
        return [call.attempt.message]

    def _time_out(self, execution: Execution, where: Slot | EventLoop) -> None:
        # Its sessions end first: the next attempt would wait for their locks.  Those of coroutines stay: all coroutines
        # share them.
        ends_sessions = partial(cut, where.sessions, execution.message) if isinstance(where, Slot) else None
        try:
            end = execution.timed_out(ends_sessions)
        except BaseException as error:  # noqa: BLE001
            end = execution.broken(error)
        if self.slots.aside.is_awaited():
            self.slots.ended(end)

    def give_up(self, now: float, *, patience_seconds: float) -> None:
        """Ends the attempts whose event loop another task blocks after its time.  They do not count."""
        for loop in self.slots.loops():
            if loop.is_left and loop.seconds_without_a_turn(now) > patience_seconds:
                for execution, timed in list(self._timed.items()):
                    if timed.where is loop and self._timed.pop(execution, None) is not None:
                        message = execution.message
                        logger.warning(
                            "gave up id=%s task=%s attempt=%s, without counting the attempt: another task blocks the "
                            "event loop",
                            message.id, message.task, message.attempt,
                        )  # fmt: skip
                        self.slots.ended(execution.deferred_uncharged())

    def bury(self) -> list[str]:
        """Ends the attempts whose thread or event loop has died.  Returns the names of the dead ones."""
        slots = self.slots.threads.dead()
        loops = [loop for loop in self.slots.loops() if loop.is_dead()]
        for slot in slots:
            self.slots.threads.replace(slot)
            execution = slot.execution
            if execution is not None and (not slot.is_limited or self._timed.pop(execution, None) is not None):
                self._end_dead(execution, slot.name)
        for loop in loops:
            for message in loop.bury():
                self._end_dead(self.slots.execution(message), LOOP)
            for execution, timed in list(self._timed.items()):
                if timed.where is loop and self._timed.pop(execution, None) is not None:
                    self._end_dead(execution, LOOP)
        return [*(slot.name for slot in slots), *(LOOP for _ in loops)]

    def _end_dead(self, execution: Execution, where: str) -> None:
        end = execution.broken(
            SlotDied(f"{where} has ended before the task. The task may have done a part of its work.")
        )
        self.slots.aside.start(partial(self.slots.ended, end))

    def next_timeout(self) -> float:
        """Returns when the time of the next attempt, or of a thread beside the slots, is up, by the monotonic clock."""
        due = [_due_at(execution, timed) for execution, timed in list(self._timed.items())]
        return min([*due, self.slots.aside.due_at(), self.slots.shared.stuck_at()])


def _due_at(execution: Execution, timed: Timed) -> float:
    waited = execution.waited()
    # Who waits for the shared thread has as much time left a moment later.
    return max(timed.until + waited, time.monotonic() + LOOK_AGAIN_SECONDS) if waited else timed.until


def timeout_seconds(message: Received) -> float | None:
    try:
        return registry.timeout_seconds(message.task or "")
    except UnknownTask:
        return None
