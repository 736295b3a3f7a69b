"""Takes messages when there is room for them, hands them to the slots, and gives back what they do not begin."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.consumer.errors import first_line
from django_pgqueue.functions import Error
from django_pgqueue.worker.claim.availability import Availability
from django_pgqueue.worker.claim.floors import Floors
from django_pgqueue.worker.claim.idleness import Idleness
from django_pgqueue.worker.claim.prefetch import MAX_CLAIMED, SHORT_SECONDS, Prefetch
from django_pgqueue.worker.claim.rest import Rest
from django_pgqueue.worker.claim.turns import Turns
from django_pgqueue.worker.run.outcome import Unknown as GivenBack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_pgqueue.consumer.parts import Parts
    from django_pgqueue.consumer.polling import Polling
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import DequeueArguments, Floor, Received
    from django_pgqueue.worker.claim.held import Held
    from django_pgqueue.worker.claim.registration import Registration
    from django_pgqueue.worker.claim.unknown import Unknown
    from django_pgqueue.worker.claim.versions import Versions
    from django_pgqueue.worker.run.outcome import EndedAttempt
    from django_pgqueue.worker.run.threads import Slots
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

LET_BEGIN_SECONDS = 50e-6
"""A pause of the process's thread after it has handed over jobs: without it, a slot would get the interpreter only when
this thread waits."""
STALLED_SECONDS = 0.5
"""When nothing has ended for this long, the worker gives back what it claimed ahead: others may start it sooner."""


class Claimer:
    """Called by the process's thread alone: in each turn to give back and to claim, and after attempts have ended."""

    def __init__(
        self,
        settings: WorkerSettings,
        session: Session,
        parts: Parts,
        *,
        slots: Slots,
        held: Held,
        unfinished: Callable[[], int],
        polling: Polling,
        registration: Registration,
        unknown: Unknown,
        versions: Versions,
        may_take: Callable[[int], int],
        settle: Callable[[], object],
        schedules: Callable[[], Sequence[str] | None],
        on_claim: Callable[[int, float], None],
    ) -> None:
        """``unfinished`` returns how many held messages have not ended.  ``may_take`` returns how many more the process
        may take beside so many unfinished ones, before another process replaces it.  ``settle`` releases messages that
        waited for others that have ended.  ``schedules``: see ``Rest``.  ``on_claim`` gets the number of messages of
        each claim, and its seconds.
        """
        self.settings = settings
        self.session = session
        self.parts = parts
        self.slots = slots
        self.held = held
        self.unfinished = unfinished
        self.polling = polling
        self.registration = registration
        self.unknown = unknown
        self.versions = versions
        self.may_take = may_take
        self.settle = settle
        self.on_claim = on_claim
        self.prefetch = Prefetch(settings.threads, ahead=not settings.quarantine)
        self.floors = Floors()
        self.turns = Turns(settings.lock_ms)
        self.availability = Availability(
            settings, session, registration=registration, polling=polling, prefetch=self.prefetch, attempt=parts.attempt
        )
        self.rest = Rest(settings, session, parts, registration=registration, polling=polling, schedules=schedules)
        self.unstarted: list[Received] = []
        """Messages that no slot has begun, to be given back."""
        self.unparked: list[tuple[Received, str]] = []
        """Messages that this worker does not know, to be parked, with the reasons."""
        self.later: list[Received] = []
        """Messages of a later version, about which is not decided yet."""
        self.left: list[tuple[Received, str]] = []
        """Messages that are left to workers of a later version, to be parked, with the reasons."""
        self.idleness = Idleness(settings.leaves_after_seconds)
        self._unreadable: list[tuple[functions.Token, Error]] = []

    # When

    def claim_if_due(self) -> None:
        self.parts.attempt("claim", self._claim_if_due)

    def _claim_if_due(self) -> None:
        room = self._room(self.unfinished())
        if room == 0:
            self.availability.full()
            return
        decides = time.monotonic() >= self.idleness.due_at()
        if time.monotonic() < self.polling.next_look and not decides:
            return
        if self.polling.rests and not decides and self.rest.goes_on():
            return
        self.polling.rests = False
        # A sleeper that knows of others with room asks whether they are still there, which costs less than a look.
        asks = self.polling.is_poll and self.polling.company.with_room and not (decides or self.settings.burst)
        if asks and self.availability.others_have_room():
            self.polling.sleeps_on(now=time.monotonic())
            return
        ready = self.rest.is_ready()
        claimed, everywhere = self._look(room)
        found = bool(claimed or self._unreadable or len(self.held)) or not self.unknown.is_over
        self.idleness.looked(found=found, everywhere=everywhere, now=time.monotonic())
        self.parts.attempt("end unreadable messages", self._fail_unreadable)
        self.availability.looked(found=bool(claimed), full=len(claimed) >= room)
        self.rest.looked(idle=not found and self.unknown.lets_rest, ready=ready)

    def due_at(self) -> float:
        """Returns when the next claim is due, by the monotonic clock."""
        if not self._room(self.unfinished() - len(self.slots.done)):
            return float("inf")
        return self.parts.due_at("claim", min(self.polling.next_look, self.idleness.due_at()))

    def attention_is_due_at(self) -> float:
        """Returns when to give back what no slot begins, or to write that there is no room."""
        due_at = float("inf")
        if self.slots.waiting():
            due_at = self.parts.due_at("give back", self.prefetch.last_progress + STALLED_SECONDS)
        full_asleep = self.polling.asleep and not self.prefetch.room(self.unfinished())
        if self.unparked or self.later or self.left:  # after an error
            due_at = min(due_at, self.parts.due_at("park", 0.0))
        if self.registration.says_room_by_mistake or full_asleep:  # after an error, not before the reconnect
            told_at = max(self.prefetch.last_progress + SHORT_SECONDS, self.session.reconnect_at)
            due_at = min(due_at, self.parts.due_at("presence", told_at))
        return due_at

    @property
    def has_left_something(self) -> bool:
        """Whether messages that this process has not begun are still locked by it."""
        return bool(self.unstarted or self.unparked or self.later or self.left)

    def _room(self, unfinished: int) -> int:
        return min(self.prefetch.room(unfinished), self.may_take(self.unfinished()))

    # A claim

    def _look(self, room: int) -> tuple[list[Received], bool]:
        """Returns the claimed messages, and whether the claim looked at every place: one from floors on leaves some
        out.
        """
        # A sleeper claims, asks when the next message is due and refreshes its row, all in one transaction.  A worker
        # that was woken only claims: a message waits for it.
        self.polling.looks()
        polls, unparks = self.polling.polled, self.unknown.wants
        with self.parts.together(wanted=polls or unparks):
            # A burst must not end before it has done what only waited for its last jobs.
            if polls or self.settings.burst:
                self.parts.attempt("dependencies", self.settle)
            if polls:
                self.availability.be_seen_with_a_poll()
            alone = not self.parts.are_together
            began = time.monotonic()
            if unparks:  # what was unparked stands before the floors
                self.parts.attempt("unpark", lambda: self.unknown.unpark(room))
            floors = None if unparks else self.floors.choose(began)
            wanted = min(MAX_CLAIMED, room + self.unknown.extra)
            claimed, waited_seconds = self._claim(wanted, floors, alone=alone, now=began)
            now = time.monotonic()
            if unparks:
                self.unknown.claimed(len(claimed), room=room)
            if claimed and alone:
                self._begin(claimed, room)
            self.polling.looked(found=len(claimed), wanted=wanted, now=now)
            if self.polling.asleep and not claimed:
                self._sleep_until_due()
        if claimed and not alone:  # nothing begins before its claim is committed
            self._begin(claimed, room)
        seconds, more = now - began - waited_seconds, len(claimed) >= wanted
        self.turns.learn(more=more)
        self.floors.learn(
            claimed, seconds=seconds, full=floors is None, now=now, crowded=more and waited_seconds > seconds
        )
        self.on_claim(len(claimed), seconds)
        return claimed, floors is None

    def _claim(self, room: int, floors: list[Floor] | None, *, alone: bool, now: float) -> tuple[list[Received], float]:
        """Returns the claimed messages, and the seconds that the claim waited for its turn.  ``alone``: the claim is a
        transaction of its own.
        """
        if self.settings.quarantine:
            return functions.quarantine_dequeue(
                self.session.statements,
                queues=self.settings.queues,
                exclude_queues=self.settings.exclude_queues,
                lock_ms=self.settings.lock_ms,
                worker=self.registration.id,
                unreadable=self._cannot_be_read,
            ), 0.0
        wanted: DequeueArguments = {
            "queues": self.settings.queues,
            "exclude_queues": self.settings.exclude_queues,
            "limit": room,
            "lock_ms": self.settings.lock_ms,
            "worker": self.registration.id,
            "tasks": True,
            "floors": floors,
        }
        statements, unreadable = self.session.statements, self._cannot_be_read
        if not alone or not self.turns.due(room, now=now):
            return functions.message_dequeue(statements, **wanted, flush=False, unreadable=unreadable), 0.0
        claimed, waited_ms = functions.message_dequeue_in_turn(
            statements, **wanted, wait_ms=self.turns.wait_ms, unreadable=unreadable
        )
        return claimed, self.turns.waited(waited_ms, now=time.monotonic())

    def _begin(self, claimed: list[Received], room: int) -> None:
        self.prefetch.last_progress = time.monotonic()
        self.slots.clock.correct(claimed[0].locked_at)
        added = self.held.add(claimed, now=self.prefetch.last_progress)
        added, later = self.versions.split(added)
        new, unknown = self.unknown.sift(added)
        self.unparked += unknown
        self.later += later
        if len(new) > room:  # known ones among those for which there was no room
            self.unstarted += new[room:]
            new = new[:room]
        self.slots.refill_below = self.prefetch.refill_below
        self.slots.submit(new)
        if unknown or later:  # after the submission, because an error of the connection ends the turn
            self.parts.attempt("park", lambda: self._park(room - len(new), alone=not new))
        if len(new) <= self.settings.threads:
            self.slots.wakeup.pause(LET_BEGIN_SECONDS)

    def _sleep_until_due(self) -> None:
        next_at, now_ms = functions.message_next_at(
            self.session.statements,
            queues=self.settings.queues,
            exclude_queues=self.settings.exclude_queues,
            tasks=True,
        )
        if next_at is not None:
            self.polling.due_in(max(0, next_at - now_ms) / 1000, now=time.monotonic())

    # What cannot be read

    def _cannot_be_read(self, message_id: int, attempt: int, error: Exception) -> None:
        """Called for a claimed row that Python cannot represent.  The slots run the other messages of the claim."""
        logger.error("unreadable id=%s attempt=%s: %s", message_id, attempt, first_line(error))
        reason = Error(message=f"The message cannot be read: {first_line(error)}")
        self._unreadable.append((functions.Token(message_id, attempt, self.registration.id), reason))

    def _fail_unreadable(self) -> None:
        """Fails each of them once: a message that cannot be failed either stays locked until its lock runs out."""
        while self._unreadable:
            token, error = self._unreadable.pop()
            functions.message_fail(self.session.statements, token, error=error)

    # Giving back

    def give_back_if_due(self, *, stopping: bool) -> None:
        """Gives back what no slot has begun, when the process stops or when nothing has ended for a while."""
        if self.unparked or self.later or self.left:
            self.parts.attempt("park", self._park)
        self.parts.attempt("give back", lambda: self._give_back(stopping=stopping))

    def _give_back(self, *, stopping: bool) -> None:
        stalled = self.slots.waiting() and time.monotonic() - self.prefetch.last_progress > STALLED_SECONDS
        if stalled or stopping:
            self.prefetch.stalled()
            self.take_back()
        while self.unstarted:  # by worker: after a failover this one has another name than those it held before
            worker = self.unstarted[0].worker
            given_back = [message for message in self.unstarted if message.worker == worker]
            functions.message_release(self.session.statements, given_back, worker=worker)
            for message in given_back:
                self.forget(message)
            self.unstarted = [message for message in self.unstarted if message.worker != worker]

    def _park(self, room: int = 0, *, alone: bool = False) -> None:
        """Parks what this worker does not know, or leaves to others.  What could not be parked is tried again in the
        next turn.  ``room``: so many may begin of those that it takes because no worker of a later version lives.
        ``alone``: the claim has found no others.
        """
        if self.later:
            self._decide(room, alone=alone)
        self.unparked = self._parked(self.unparked, unknown=True)
        self.left = self._parked(self.left, unknown=False)
        if self.settings.burst:  # which ends when it finds nothing more
            self.polling.notified()

    def _decide(self, room: int, *, alone: bool) -> None:
        taken, left = self.versions.sort(self.later)
        self.later = []
        self.left += left
        new, unknown = self.unknown.sift(taken)
        self.unparked += unknown
        self.unstarted += new[room:]
        self.slots.submit(new[:room])
        if alone and not taken:
            self.unknown.none_runs(len(left))

    def _parked(self, waiting: list[tuple[Received, str]], *, unknown: bool) -> list[tuple[Received, str]]:
        """Parks them, and returns what is left to do."""
        while waiting:  # by worker, as above
            worker = waiting[0][0].worker
            ours = [(message, reason) for message, reason in waiting if message.worker == worker]
            functions.message_park(self.session.statements, ours, worker=worker, unknown=unknown)
            waiting = [(message, reason) for message, reason in waiting if message.worker != worker]
            for message, _ in ours:
                self.forget(message)
        return waiting

    def take_back(self) -> None:
        """Takes unstarted messages from the slots, to be given back.  None of them begins from now on, even while the
        database is away.
        """
        self.unstarted += self.slots.take_unstarted()

    # What has ended

    def learn(self, ends: Sequence[EndedAttempt]) -> None:
        """Learns how long jobs take."""
        self.prefetch.last_progress = time.monotonic()
        for end in ends:
            if isinstance(end.outcome, GivenBack):
                self.unknown.refused(end.message, end.outcome.error.message)
        if ran := [end for end in ends if not isinstance(end.outcome, GivenBack)]:
            self.prefetch.learn(ran)

    def recorded(self, ends: Sequence[EndedAttempt]) -> None:
        """Forgets the messages whose ends are recorded."""
        for end in ends:
            self.forget(end.message)
        if any(end.message.channel is not None for end in ends):  # a channel may have room again
            self.polling.notified()
        self.idleness.worked()
        if self.settings.burst:  # an ended job may have left something to do: the burst looks again
            self.polling.notified()

    def forget(self, message: Received) -> None:
        if self.held.forget(message):
            self.slots.reports.forget(message)
