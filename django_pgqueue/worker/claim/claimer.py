"""Takes messages when there is room for them, and hands them to the slots."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import psycopg

from django_pgqueue import functions
from django_pgqueue.consumer.errors import first_line
from django_pgqueue.consumer.parts import NOT_DUE
from django_pgqueue.consumer.statements import Statements
from django_pgqueue.consumer.wakeup import readable
from django_pgqueue.functions import Error
from django_pgqueue.worker.claim.availability import Availability
from django_pgqueue.worker.claim.caution import Caution, memory_error
from django_pgqueue.worker.claim.floors import Floors
from django_pgqueue.worker.claim.give_back import GiveBack
from django_pgqueue.worker.claim.held import Held
from django_pgqueue.worker.claim.idleness import Idleness
from django_pgqueue.worker.claim.prefetch import MAX_CLAIMED, SHORT_SECONDS, Prefetch
from django_pgqueue.worker.claim.rest import Rest
from django_pgqueue.worker.claim.turns import Turns
from django_pgqueue.worker.claim.unknown import UnknownMessages
from django_pgqueue.worker.claim.versions import Versions
from django_pgqueue.worker.run.outcome import Committed, GivenBack, Succeeded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_pgqueue.conf import Options
    from django_pgqueue.consumer.parts import Parts
    from django_pgqueue.consumer.polling import Polling
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import DequeueArguments, Floor, Prospect, Received
    from django_pgqueue.worker.claim.registration import Registration
    from django_pgqueue.worker.run.outcome import EndedAttempt
    from django_pgqueue.worker.run.slots import Slots
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

LET_BEGIN_SECONDS = 50e-6
"""A pause of the process's thread after it has handed over jobs: without it, a slot would get the interpreter only when
this thread waits."""


class Claimer:
    """Called by the process's thread alone: in each turn to claim, and after attempts have ended."""

    def __init__(
        self,
        settings: WorkerSettings,
        session: Session,
        parts: Parts,
        *,
        slots: Slots,
        polling: Polling,
        registration: Registration,
        options: Options,
        unrecorded: Callable[[], int],
        may_take: Callable[[int], int],
        settle: Callable[[], object],
        schedules: Callable[[], Sequence[str] | None],
        on_claim: Callable[[int, float], None],
        meanwhile: Callable[[], None],
    ) -> None:
        """``unrecorded`` returns how many held messages have ended.  ``may_take`` returns how many more the process may
        take beside so many unfinished ones, before another process replaces it.  ``settle`` releases messages that
        waited for others that have ended.  ``schedules``: see ``Rest``.  ``on_claim`` gets the number of messages of
        each claim, and its seconds.  ``meanwhile``: what the process's thread does while PostgreSQL works on a claim
        in a flood.
        """
        self.settings = settings
        self.session = session
        self.parts = parts
        self.slots = slots
        self.polling = polling
        self.registration = registration
        self.unrecorded = unrecorded
        self.may_take = may_take
        self.settle = settle
        self.on_claim = on_claim
        self.meanwhile = meanwhile
        self.held = Held(settings, session, parts)
        self.versions = Versions(session, options.version)
        self.unknown = UnknownMessages(
            settings,
            session,
            fail_after_seconds=options.unknown_task_seconds,
            polling=polling,
            versions=self.versions,
            changed=registration.be_seen_soon,
        )
        registration.version = self.versions.own
        registration.lacks = lambda: self.unknown.lacks
        registration.refuses = lambda: self.unknown.refuses
        registration.holds = lambda: len(self.held) > 0
        registration.on_seen = lambda company: self.unknown.seen(has_parked=company.has_parked)
        self.prefetch = Prefetch(settings.threads, ahead=not settings.quarantine)
        self.floors = Floors()
        self.turns = Turns(settings.lock_ms)
        self.caution = Caution(session)
        self.availability = Availability(
            settings, session, registration=registration, polling=polling, prefetch=self.prefetch, do=parts.do
        )
        self.rest = Rest(settings, session, parts, registration=registration, polling=polling, schedules=schedules)
        self.give_back = GiveBack(
            settings,
            session,
            parts,
            slots=slots,
            polling=polling,
            prefetch=self.prefetch,
            unknown=self.unknown,
            versions=self.versions,
            forget=self.forget,
        )
        self.idleness = Idleness(settings.leaves_after_seconds)
        self._unreadable: list[tuple[functions.Token, Error]] = []
        self._meanwhile_seconds = self._flush_seconds = 0.0
        """How long an answer may have waited until it was read, and how long the claim waited for the disk."""

    def unfinished(self) -> int:
        """Returns how many held messages have not ended."""
        return len(self.held) - self.unrecorded()

    def running(self) -> int:
        """Returns how many of these have begun."""
        return self.unfinished() - len(self.give_back.unstarted)

    # When

    def claim_if_due(self) -> None:
        self.parts.do("claim", self._claim_if_due)

    def _claim_if_due(self) -> object:
        room = self._room(self.unfinished())
        if room == 0:
            self.availability.full()
            return NOT_DUE
        decides = time.monotonic() >= self.idleness.due_at()
        if time.monotonic() < self.polling.next_look and not decides:
            return NOT_DUE
        if self.polling.rests and not decides and self.rest.goes_on():
            return NOT_DUE
        self.polling.rests = False
        if not decides and not self.polling.is_due(self._writing, now=time.monotonic()):
            return NOT_DUE
        # A sleeper that knows of others with room asks whether they are still there, which costs less than a look.
        asks = self.polling.is_poll and self.polling.company.with_room and not (decides or self.settings.burst)
        if asks and self.availability.others_have_room():
            self.polling.sleeps_on(now=time.monotonic())
            return NOT_DUE
        ready = self.rest.is_ready()
        claimed, everywhere = self._look(room)
        found = bool(claimed or self._unreadable or len(self.held)) or not self.unknown.is_over
        self.idleness.looked(found=found, everywhere=everywhere, now=time.monotonic())
        self.parts.do("end unreadable messages", self._fail_unreadable)
        self.availability.looked(found=bool(claimed), full=len(claimed) >= room)
        self.rest.looked(idle=not found and self.unknown.lets_rest, ready=ready)
        return None

    def due_at(self) -> float:
        """Returns when the next claim is due, or the next look at parked messages, by the monotonic clock."""
        due_at = self.parts.due_at("unknown tasks", self.unknown.due_at())
        if not self._room(self.unfinished() - len(self.slots.done)):
            return due_at
        return min(due_at, self.parts.due_at("claim", min(self.polling.next_look, self.idleness.due_at())))

    def look_at_parked_if_due(self) -> None:
        self.parts.do("unknown tasks", self.unknown.look_if_due)

    def attention_is_due_at(self) -> float:
        """Returns when to give back what no slot begins, or to write that there is no room."""
        due_at = self.give_back.due_at()
        full_asleep = self.polling.asleep and not self.prefetch.room(self.unfinished())
        if self.registration.says_room_by_mistake or full_asleep:  # after an error, not before the reconnect
            told_at = max(self.prefetch.last_progress + SHORT_SECONDS, self.session.reconnect_at)
            due_at = min(due_at, self.parts.due_at("presence", told_at))
        return due_at

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
                self.parts.do("dependencies", self.settle)
            if polls:
                self.availability.be_seen_with_a_poll()
            alone = not self.parts.are_together
            began = time.monotonic()
            if unparks:  # what was unparked stands before the floors
                self.parts.do("unpark", lambda: self.unknown.unpark(room))
            prospect = self._prospect() if polls else None
            floors = None if unparks else self.floors.choose(began)
            wanted = min(MAX_CLAIMED, room + self.unknown.extra, self.caution.limit or MAX_CLAIMED)
            self._meanwhile_seconds = self._flush_seconds = 0.0
            claimed, waited_seconds = self._claim(wanted, floors, alone=alone, now=began)
            now = time.monotonic()
            if unparks:
                self.unknown.claimed(len(claimed), room=room)
            if alone:
                self._begin(claimed, room, asked=began)
            else:
                self.caution.commits(worker=self.registration.id)
            self.polling.looked(found=len(claimed) + len(self._unreadable), wanted=wanted, now=now)
            if self.polling.stays_asleep and (prospect is not None or not polls):
                self.polling.slept_on(prospect, now=now)
        if not alone:  # nothing begins before its claim is committed
            self.caution.committed(worker=self.registration.id)
            self._begin(claimed, room, asked=began)
        self.caution.claimed(len(claimed), len(self._unreadable))
        seconds = now - began - max(waited_seconds, self._meanwhile_seconds) - self._flush_seconds
        more = len(claimed) >= wanted
        self.turns.learn(more=more)
        self.floors.learn(
            claimed, seconds=seconds, full=floors is None, now=now, crowded=more and 2 * waited_seconds > now - began
        )
        self.on_claim(len(claimed), seconds)
        return claimed, floors is None

    def _claim(self, room: int, floors: list[Floor] | None, *, alone: bool, now: float) -> tuple[list[Received], float]:
        """Returns the claimed messages, and the seconds that the claim waited for its turn.  ``alone``: the claim is a
        transaction of its own.
        """
        if self.caution.is_unanswered:
            self.caution.give_back([held.message.id for held in self.held], [token for token, _ in self._unreadable])
        try:
            claimed, waited_seconds = self._claimed(room, floors, alone=alone, now=now)
            if claimed:
                flushed_at = time.monotonic()
                self.session.flush_claims()
                self._flush_seconds = time.monotonic() - flushed_at
        except (psycopg.Error, UnicodeError) as error:
            self.caution.failed(error, worker=self.registration.id)
            raise
        except MemoryError as error:
            self.caution.failed(error, worker=self.registration.id)
            raise memory_error() from error
        return claimed, waited_seconds

    def _claimed(
        self, room: int, floors: list[Floor] | None, *, alone: bool, now: float
    ) -> tuple[list[Received], float]:
        care = self.caution.limit is not None
        if self.settings.quarantine:
            return functions.quarantine_dequeue(
                self.session.statements,
                queues=self.settings.queues,
                exclude_queues=self.settings.exclude_queues,
                lock_ms=self.settings.lock_ms,
                worker=self.registration.id,
                care=care,
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
        if self.turns.more and isinstance(statements, Statements):
            statements.meanwhile = self._do_meanwhile
        if care or not alone or not self.turns.due(room, now=now):
            return functions.message_dequeue(statements, **wanted, flush=False, care=care, unreadable=unreadable), 0.0
        claimed, waited_ms = functions.message_dequeue_in_turn(
            statements, **wanted, wait_ms=self.turns.wait_ms, unreadable=unreadable
        )
        return claimed, self.turns.waited(waited_ms, now=time.monotonic())

    def _do_meanwhile(self) -> None:
        began = time.monotonic()
        self.meanwhile()
        if readable([self.session.connection.fileno()], 0.0):  # the claim took less time than this
            self._meanwhile_seconds = time.monotonic() - began

    def _begin(self, claimed: list[Received], room: int, *, asked: float) -> None:
        """``asked``: when the claim was sent.  The locks last from about then, however late the answer came."""
        if not claimed:
            return
        self.prefetch.last_progress = time.monotonic()
        self.registration.begins_to_hold(now=self.prefetch.last_progress)
        self.slots.clock.correct(claimed[0].locked_at, asked=asked)
        added, later = self.versions.split(self.held.add(claimed, now=asked))
        new, unknown = self.unknown.sift(added)
        if len(new) > room:  # known ones among those for which there was no room
            self.give_back.unstarted += new[room:]
            new = new[:room]
        self.slots.refill_below = self.prefetch.refill_below
        self.slots.submit(new)
        # After the submission, because an error of the connection ends the turn.
        self.give_back.park(unknown, later, room=room - len(new), alone=not new)
        if len(new) <= self.settings.threads:
            self.slots.wakeup.pause(LET_BEGIN_SECONDS)

    def _prospect(self) -> Prospect | None:
        """Returns None if it is not to be had at present: the claim goes on without it."""
        answers: list[Prospect] = []

        def ask() -> None:
            prospect = functions.message_prospect(
                self.session.statements,
                queues=self.settings.queues,
                exclude_queues=self.settings.exclude_queues,
                tasks=True,
            )
            answers.append(prospect)

        self.parts.do("look ahead", ask)
        if answers and answers[0].misses_one:
            self.registration.on_missed()
        return answers[0] if answers else None

    def _writing(self) -> frozenset[int]:
        return functions.transactions_writing(self.session.statements)

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
        if not all(isinstance(end.outcome, (Succeeded, Committed)) for end in ends):
            self.polling.looks_soon()  # perhaps there will be another attempt, and nobody is told
        if any(end.message.channel is not None for end in ends):  # a channel may have room again
            self.polling.notified()
        self.idleness.worked()
        if self.settings.burst:  # an ended job may have left something to do: the burst looks again
            self.polling.notified()

    def forget(self, message: Received) -> None:
        if self.held.forget(message):
            self.slots.reports.forget(message)
