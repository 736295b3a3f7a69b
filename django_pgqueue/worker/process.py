"""One worker process: claims messages, lets the slots run them, records how they ended."""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import psycopg

from django_pgqueue import functions, traces
from django_pgqueue.compat import task_backends
from django_pgqueue.consumer.background import Background
from django_pgqueue.consumer.errors import BUSY_ERRORS, CONNECTION_ERRORS, first_line, is_of_the_connection
from django_pgqueue.consumer.polling import Idleness
from django_pgqueue.consumer.session import Session
from django_pgqueue.consumer.wakeup import Waker
from django_pgqueue.functions import Error
from django_pgqueue.tasks import registry
from django_pgqueue.worker.claim.availability import Readiness
from django_pgqueue.worker.claim.floors import Floors
from django_pgqueue.worker.claim.held import Heartbeats, Holdings, Progress
from django_pgqueue.worker.claim.prefetch import SHORT_SECONDS, Pace
from django_pgqueue.worker.claim.registration import Presence
from django_pgqueue.worker.claim.turns import Turns
from django_pgqueue.worker.record.recorder import BLOCKED_SECONDS, RECORD_WITHIN_SECONDS, Recorder
from django_pgqueue.worker.run.clock import DatabaseClock
from django_pgqueue.worker.run.marks import Begun
from django_pgqueue.worker.run.threads import Slots
from django_pgqueue.worker.run.watchdog import Watchdog
from django_pgqueue.worker.settings import RECYCLED_EXIT_CODE as RECYCLED
from django_pgqueue.worker.upkeep import deaths
from django_pgqueue.worker.upkeep.maintenance import Maintenance
from django_pgqueue.worker.upkeep.recycling import Recycling
from django_pgqueue.worker.upkeep.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.consumer.background import Duty
    from django_pgqueue.functions import Connection, Floor, Received, Wanted
    from django_pgqueue.worker.health.reporter import Watch
    from django_pgqueue.worker.run.marks import Death
    from django_pgqueue.worker.run.outcome import Ended
    from django_pgqueue.worker.settings import WorkerSettings
    from django_pgqueue.worker.upkeep.retirement import Retirement

logger = logging.getLogger("django_pgqueue.worker")

LONGEST_WAIT_SECONDS = 1.0
LET_BEGIN_SECONDS = 50e-6
"""A slot that has just been given a job gets the interpreter at once: it would wait until this thread waits."""
STALLED_SECONDS = 0.5
"""When nothing has ended for so long, what was claimed ahead is given back: others may start it sooner."""
SETTLE_EVERY_SECONDS = 0.2
HOT_LOCK_MS = 50
"""How long a statement of the consumer's thread waits for somebody else's lock: everything else waits for it."""
HOT_STATEMENT_MS = 60_000
UPKEEP_LOCK_MS = 200
MIN_POSTPONE_SECONDS, MAX_POSTPONE_SECONDS = 0.1, 10.0
APART_SECONDS = 60.0
"""After an error in a poll, its parts are transactions of their own for so long: none of them undoes the others."""
LEAVE_SECONDS = 2.0
"""How long a worker that leaves tries to record the ends whose rows somebody else has locked."""


@dataclass(slots=True)
class Postponed:
    """A part of the turn that has failed."""

    until: float = 0.0
    seconds: float = MIN_POSTPONE_SECONDS
    problem: str | None = None


class Consumer:
    """The life of a worker process is ``run``.  Only its thread talks to the queue; the slots only run tasks."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        parent: int | None = None,
        watch: Watch | None = None,
        retirement: Retirement | None = None,
        begun: Begun | None = None,
        died: Sequence[Death] = (),
    ) -> None:
        self.settings = settings
        self.parent = parent
        self.begun = begun or Begun(settings.threads)
        """Read by the supervisor, if there is one, when this process has died."""
        self.died = died
        """Other processes, whose deaths are to be recorded."""
        self.watch = watch
        """Told of what is done, where somebody wants to know."""
        self.presence = Presence(settings, None if settings.quarantine else self.begun)
        self.presence.problem = self._problem
        self.id = self.presence.id
        self.backend = cast("PgQueueBackend", task_backends[settings.backend])
        self.database = self.backend.settings.database
        self.waker = Waker()
        self.pace = Pace(settings.threads, ahead=not settings.quarantine)
        self.floors = Floors()
        self.turns = Turns(settings.lock_ms)
        self.scheduler = Scheduler(self.database, worker=self.id, off=settings.burst)
        self.recycling = Recycling(settings, retirement)
        self.watchdog = Watchdog()
        self.retiring = False
        """Another process has taken its place: it ends what it has begun, and leaves."""
        self.jobs = 0
        self.idleness = Idleness(listen=settings.listen)
        self.held = Holdings(settings)
        self.unstarted: list[Received] = []
        self.unreadable: list[tuple[functions.Token, Error]] = []
        self.gone: list[str] = []
        """Names that this worker had before the server was started anew."""
        self.postponed: dict[str, Postponed] = {}
        self.together = False
        """Within the transaction of a poll."""
        self.apart_until = 0.0
        self.drained = False
        self.stop_by: float | None = None
        self.stop_now = self.stopping = False
        self.next_settling = 0.0
        self.maintenance = Maintenance(history_days=settings.history_days)
        self.session = Session(
            self.database,
            consumer=self.id,
            pooled=not settings.listen,
            notified=self.idleness.notified,
            lock_ms=HOT_LOCK_MS,
            statement_ms=HOT_STATEMENT_MS,
            renamed=self._renamed,
        )
        self.readiness = Readiness(
            settings,
            self.session,
            presence=self.presence,
            idleness=self.idleness,
            pace=self.pace,
            attempt=self._attempt,
        )
        self.slots: Slots
        self.recorder: Recorder
        self.background: list[Background] = []

    @property
    def connection(self) -> psycopg.Connection[Any]:
        return self.session.connection

    @property
    def statements(self) -> Connection:
        return self.session.statements

    def run(self) -> int:
        """Works until told to stop, or until nothing is ready in a burst.  Answers the exit code."""
        registry.autodiscover()
        self.session.open()
        deaths.report(self.session, self.died, self.begun)
        self.begun.sign_on(self.id)
        self.clock = DatabaseClock(functions.now(self.statements))
        self.slots = Slots(
            self.settings.threads, backend=self.backend, clock=self.clock, waker=self.waker, begun=self.begun
        )
        self.recorder = Recorder(self.session, announce=self.slots.announce, on_recorded=self._recorded)
        self.background = [
            self._beside("heartbeats", Heartbeats(self.settings, self.held), Progress(self.slots.reports)),
            self._beside("upkeep", self.maintenance),
        ]
        logger.info("started worker=%s slots=%s queues=%s", self.id, self.settings.threads, self.settings.served)
        while not self._finished():
            self._turn()
            if self.parent not in (None, os.getppid()) and self.stop_by is None:
                logger.error("worker=%s has lost its supervisor", self.id)
                self.stop()
        return self._leave()

    def _beside(self, name: str, *duties: Duty) -> Background:
        return Background(
            name,
            duties,
            database=self.database,
            worker=self.id,
            pooled=not self.settings.listen,
            lock_ms=UPKEEP_LOCK_MS,
        )

    def stop(self, *, again: bool = True) -> None:
        """Asks to stop: nothing new is begun, and what runs may end within grace.  Asked again: stops now, unless
        ``again`` says that this is the same request.
        """
        if self.stop_by is None:
            self.stop_by = time.monotonic() + self.settings.grace_seconds
        elif again:
            self.stop_now = True
        self.waker.wake()

    def _turn(self) -> None:
        if self.watch is not None:
            self.watch.turned(
                running=self._unfinished(),
                connected=not self.session.is_closed,
                stopping=self.stop_by is not None,
                blocked_seconds=self.watchdog.blocked_seconds,
                died=self.watchdog.died,
            )
        try:
            if self.stop_by is not None and not self.stopping:
                self._begin_to_stop()
            self._reconnect_if_needed()
            if self.idleness.hurries and not self.held and not self.session.is_closed:
                self._attempt("claim", self._claim_if_due)  # somebody waits for it, and there is nothing else to do
            self._time_out()
            self._collect()
            if not self.session.is_closed:
                self.recorder.write_if_due(now=time.monotonic(), busy=self._unfinished() > 0)
                self._attempt("give back", self._give_back_if_stopping_or_stalled)
                self._attempt("attend", self._attend_if_due)
                self._retire_if_due()
                self.readiness.be_seen_if_due(stopping=self._is_leaving())
                self._attempt("schedules", self._schedule_if_due)
                self._attempt("dependencies", self._settle_if_due)
                self._attempt("claim", self._claim_if_due)
            for background in self.background:
                background.start_if_due()
        except CONNECTION_ERRORS as error:
            self._pause(error)
        self._wait()

    def _attempt(self, what: str, do: Callable[[], object]) -> None:
        """Does a part of the turn.  Unless the connection is to blame, its error is nobody else's: it is told once, and
        the part is left out for a while.
        """
        postponed = self.postponed.get(what)
        if postponed is not None and time.monotonic() < postponed.until and not self.together:
            return
        try:
            do()
        except (psycopg.Error, UnicodeError) as error:
            if self.together or is_of_the_connection(self.connection, error):
                raise
            self._postpone(what, error)
        else:
            if postponed is not None and not self.together:
                del self.postponed[what]

    def _postpone(self, what: str, error: Exception) -> None:
        postponed = self.postponed.setdefault(what, Postponed())
        if postponed.problem is None and not isinstance(error, BUSY_ERRORS):
            postponed.problem = f"{what}: {first_line(error)}"
            logger.error("not possible worker=%s %s", self.id, postponed.problem)
        postponed.until = time.monotonic() + postponed.seconds
        postponed.seconds = min(MAX_POSTPONE_SECONDS, 2 * postponed.seconds)

    def _until(self, what: str) -> float:
        """Until when a part of the turn is left out."""
        postponed = self.postponed.get(what)
        return 0.0 if postponed is None else postponed.until

    def _problem(self) -> str | None:
        problems = [one.problem for one in self.postponed.values() if one.problem is not None]
        for background in self.background:
            problems += [f"{name}: {why}" for name, why in list(background.problems.items())]
        problems += list(self.maintenance.problems.values())
        return "; ".join(problems) or None

    def _finished(self) -> bool:
        if self.stop_by is None:
            return (self.drained or self.retiring) and not self._busy()
        return self.stop_now or not self._busy() or time.monotonic() > self.stop_by

    def _is_leaving(self) -> bool:
        """It claims nothing more."""
        return self.retiring or self.stop_by is not None

    def _busy(self) -> bool:
        return bool(self.held) or self.slots.busy_aside()

    # Limits

    def _time_out(self) -> None:
        now = time.monotonic()
        for message in self.slots.time_out(now):
            self.recycling.timed_out(message.id)
        if (reason := self.watchdog.look_if_due(self.slots, now=now)) is not None:
            logger.error("slot died worker=%s: %s, and so the process is replaced", self.id, reason)
            self.recycling.died(reason)
        if self.recycling.is_stuck:
            self.slots.give_up(now, patience_seconds=self.settings.grace_seconds)

    def _retire_if_due(self) -> None:
        if self._is_leaving():
            return
        reason = self.recycling.retire(jobs=self.jobs, unfinished=self._unfinished())
        if reason is not None:
            self.retiring = True
            if self.recycling.is_stuck:  # who knows what else is: others begin at once what has not begun
                self.unstarted += self.slots.take_unstarted()
            running = self._unfinished() - len(self.unstarted)
            logger.info("retiring worker=%s running=%s: %s", self.id, running, reason)

    # Claiming

    def _claim_if_due(self) -> None:
        if self._is_leaving():
            return
        room = self._room(self._unfinished())
        if room == 0:
            self.readiness.full()
            return
        if time.monotonic() < self.idleness.next_look:
            return
        # Who knows of others that have room asks whether they are still there, which costs less than to look.
        if self.idleness.is_poll and self.idleness.company.with_room and self.readiness.others_have_room():
            self.idleness.sleeps_on(now=time.monotonic())
            return
        claimed, everywhere = self._look(room)
        self.drained = self.settings.burst and everywhere and not claimed and not self.unreadable
        self._attempt("end what cannot be read", self._fail_unreadable)
        self.readiness.looked(found=bool(claimed), full=len(claimed) >= room)

    def _room(self, unfinished: int) -> int:
        return min(self.pace.room(unfinished), self.recycling.room(self.jobs + self._unfinished()))

    def _look(self, room: int) -> tuple[list[Received], bool]:
        """What was claimed, and whether every place was looked at (a claim from floors on leaves some out)."""
        # A sleeper asks what there is and when there will be more, and says that it lives, for the price of one
        # transaction.  Who has been woken asks for work alone: somebody waits for it.
        self.idleness.looks()
        polls = self.idleness.polled
        with self._together(polls and time.monotonic() >= self.apart_until):
            # A burst that is over must not leave what only waited for its last jobs.
            if polls or self.settings.burst:
                self._attempt("dependencies", self._settle)
            if polls:
                self.readiness.be_seen_with_a_poll()
            began = time.monotonic()
            floors = self.floors.choose(began)
            claimed, waited_seconds = self._claim(room, floors, alone=not self.together, now=began)
            now = time.monotonic()
            if claimed and not self.together:
                self._begin(claimed)
            begun = not self.together
            self.idleness.looked(found=len(claimed), wanted=room, now=now)
            if self.idleness.asleep and not claimed:
                self._sleep_until_due()
        if claimed and not begun:  # nothing begins before its claim is committed
            self._begin(claimed)
        seconds, more = now - began - waited_seconds, len(claimed) >= room
        self.turns.learn(more=more)
        self.floors.learn(
            claimed, seconds=seconds, full=floors is None, now=now, crowded=more and waited_seconds > seconds
        )
        if self.watch is not None:
            self.watch.claimed(len(claimed), seconds=seconds)
        return claimed, floors is None

    @contextmanager
    def _together(self, together: bool) -> Iterator[None]:
        """A poll asks for several things in one transaction."""
        if not together:
            yield
            return
        self.together = True
        try:
            with self.session.transaction():
                yield
        except (psycopg.Error, UnicodeError):
            self.apart_until = time.monotonic() + APART_SECONDS
            raise
        finally:
            self.together = False

    def _unreadable(self, message_id: int, attempt: int, error: Exception) -> None:
        """A row that was claimed with others, and that Python cannot represent.  The others are run."""
        logger.error("unreadable id=%s attempt=%s: %s", message_id, attempt, first_line(error))
        reason = Error(message=f"The message cannot be read: {first_line(error)}")
        self.unreadable.append((functions.Token(message_id, attempt, self.id), reason))

    def _fail_unreadable(self) -> None:
        """Once: what cannot be ended either is held until its lock runs out."""
        while self.unreadable:
            token, error = self.unreadable.pop()
            functions.message_fail(self.statements, token, error=error)

    def _claim(self, room: int, floors: list[Floor] | None, *, alone: bool, now: float) -> tuple[list[Received], float]:
        """What was claimed, and how many seconds it waited for its turn.  ``alone``: in a transaction of its own."""
        if self.settings.quarantine:
            return functions.quarantine_dequeue(
                self.statements,
                queues=self.settings.queues,
                exclude_queues=self.settings.exclude_queues,
                lock_ms=self.settings.lock_ms,
                worker=self.id,
                unreadable=self._unreadable,
            ), 0.0
        wanted: Wanted = {
            "queues": self.settings.queues,
            "exclude_queues": self.settings.exclude_queues,
            "limit": room,
            "lock_ms": self.settings.lock_ms,
            "worker": self.id,
            "tasks": True,
            "floors": floors,
        }
        if not alone or not self.turns.due(room, now=now):
            return functions.message_dequeue(self.statements, **wanted, flush=False, unreadable=self._unreadable), 0.0
        claimed, waited_ms = functions.message_dequeue_in_turn(
            self.statements, **wanted, wait_ms=self.turns.wait_ms, unreadable=self._unreadable
        )
        return claimed, self.turns.waited(waited_ms, now=time.monotonic())

    def _begin(self, claimed: list[Received]) -> None:
        self.pace.last_progress = time.monotonic()
        self.clock.correct(claimed[0].locked_at)
        new = self.held.add(claimed, now=self.pace.last_progress)
        self.slots.refill_below = self.pace.refill_below
        self.slots.run(new)
        if len(new) <= self.settings.threads:
            self.waker.pause(LET_BEGIN_SECONDS)

    def _sleep_until_due(self) -> None:
        next_at, now_ms = functions.message_next_at(
            self.statements, queues=self.settings.queues, exclude_queues=self.settings.exclude_queues, tasks=True
        )
        if next_at is not None:
            self.idleness.due_in(max(0, next_at - now_ms) / 1000, now=time.monotonic())

    # Recording

    def _collect(self) -> None:
        collected = self.slots.take_done()
        if collected:
            self.pace.last_progress = time.monotonic()
            self.jobs += len(collected)
            self.recorder.add(collected, now=self.pace.last_progress)
            self.pace.learn(collected)

    def _recorded(self, ends: list[Ended], otherwise: dict[tuple[int, int], str]) -> None:
        if self.watch is not None:
            self.watch.recorded(ends, otherwise)
        for end in ends:
            self._forget(end.message)
        if any(end.message.channel is not None for end in ends):  # a channel may have room again
            self.idleness.notified()
        if self.settings.burst:  # what has ended may have left something to do: leave only after another look
            self.drained = False
            self.idleness.notified()

    def _forget(self, message: Received) -> None:
        if self.held.forget(message):
            self.slots.reports.forget(message)

    def _unfinished(self) -> int:
        return len(self.held) - len(self.recorder)

    # Attending to what is held

    def _attend_if_due(self) -> None:
        """Asks whether what is held shall stop."""
        now = time.monotonic()
        if self.held.needs_attention(now=now):
            asked = self.held.asked_to_stop(self.statements, now=now)
            if new := asked - self.slots.reports.cancelled:
                self.slots.cancel(new)

    # What every worker does for all

    def _schedule_if_due(self) -> None:
        if self._is_leaving():
            self.scheduler.leave(self.statements)
        elif self.scheduler.look_if_due(self.statements):
            self.idleness.notified()

    def _settle_if_due(self) -> None:
        """Looks at messages that wait for others and may have missed an end.  All the rest is released by claims."""
        now = time.monotonic()
        # A sleeper does it when it looks, in the same transaction.
        is_time = now >= self.next_settling and not self.idleness.asleep
        if not self._is_leaving() and is_time:
            self.next_settling = now + SETTLE_EVERY_SECONDS
            if self._settle():
                self.idleness.notified()

    def _settle(self) -> int:
        return functions.message_settle(self.statements)

    # Waiting

    def _wait(self) -> None:
        # Who ends an attempt after this line wakes us; who ended one before is seen by the next lines.
        self.waker.parked = True
        seconds = self._seconds_until_something_is_due()
        if seconds <= 0:  # who waits for nothing still gives the interpreter to the slots, and gets it back late
            self.waker.parked = False
            return
        files = [] if self.session.is_closed or not self.idleness.asleep else [self.connection.fileno()]
        if self.waker.wait(seconds, *files):
            self._notified()

    def _seconds_until_something_is_due(self) -> float:
        now = time.monotonic()
        due = [now + LONGEST_WAIT_SECONDS, self.slots.next_timeout()]
        if self._finished():
            return 0.0
        if self.session.is_closed:  # all else waits for this
            return min(*due, self.session.reconnect_at, self.stop_by or self.session.reconnect_at) - now
        busy = self._unfinished() - len(self.slots.done) > 0
        if self.slots.done:
            due.append(now + (RECORD_WITHIN_SECONDS if busy else 0))
        due += [self.recorder.due_at(busy=busy), *(one.due_at() for one in self.background)]
        if self.stop_by is not None:
            due.append(self.stop_by)
        elif not self.retiring:
            due.append(max(self.scheduler.next_look, self._until("schedules")))
            if self._room(self._unfinished() - len(self.slots.done)):
                due.append(max(self.idleness.next_look, self._until("claim")))
        return min(*due, *self._attention_is_due()) - now

    def _attention_is_due(self) -> Iterator[float]:
        """When what is held has to be looked at."""
        if self.held:
            yield max(self.held.next_attention, self._until("attend"))
        if self.slots.waiting():
            yield max(self.pace.last_progress + STALLED_SECONDS, self._until("give back"))
        if self.presence.says_room_by_mistake or (self.idleness.asleep and not self.pace.room(self._unfinished())):
            # After an error it leaves time.
            yield max(self.pace.last_progress + SHORT_SECONDS, self.session.reconnect_at, self._until("presence"))

    def _notified(self) -> None:
        try:
            self.session.take_notifications()
        except CONNECTION_ERRORS as error:
            self._pause(error)

    # The connection

    def _reconnect_if_needed(self) -> None:
        if self.session.reopen_if_due():
            self.presence.next_seen = 0.0
            self.slots.reconnects += 1
            for name in self.gone:
                functions.worker_gone(self.statements, name)
            self.gone = []
            if self.watch is not None:
                self.watch.reconnected()

    def _renamed(self) -> str:
        """The server was started anew, or another one has taken over: what it had committed last may be gone, and its
        ids may come again.  With a new name no end of what is held here can be taken for the end of another job.
        """
        before = self.presence.rename()
        self.gone.append(before)
        self.id = self.presence.id
        self.begun.sign_on(self.id)
        self.scheduler.renamed(self.id)
        logger.warning(
            "the server is another one, or was started anew: worker=%s goes on as worker=%s", before, self.id
        )
        return self.id

    def _pause(self, error: Exception) -> None:
        """After an error of the connection: what was held is still held, and what has ended is recorded later."""
        seconds, now = self.session.failed(error), time.monotonic()
        self.idleness.pause(seconds, now=now)
        self.recorder.pause(seconds, now=now)

    # Giving back and stopping

    def _give_back_if_stopping_or_stalled(self) -> None:
        stalled = self.slots.waiting() and time.monotonic() - self.pace.last_progress > STALLED_SECONDS
        if stalled or self.stop_by is not None:
            self.pace.stalled()
            self.unstarted += self.slots.take_unstarted()
        while self.unstarted:
            worker = self.unstarted[0].worker
            given_back = [message for message in self.unstarted if message.worker == worker]
            functions.message_release(self.statements, given_back, worker=worker)
            for message in given_back:
                self._forget(message)
            self.unstarted = [message for message in self.unstarted if message.worker != worker]

    def _record_the_last(self) -> None:
        self.recorder.write()
        leave_by = time.monotonic() + LEAVE_SECONDS
        while self.recorder.blocked and time.monotonic() < leave_by and not self.stop_now:
            self.recorder.write_blocked(now=time.monotonic())
            self.waker.pause(BLOCKED_SECONDS)

    def _begin_to_stop(self) -> None:
        self.stopping = True
        self.unstarted += self.slots.take_unstarted()  # even while the database is away nothing new begins
        logger.info(
            "stopping worker=%s running=%s grace_seconds=%s",
            self.id,
            self._unfinished() - len(self.unstarted),
            self.settings.grace_seconds,
        )

    def _leave(self) -> int:
        self.slots.stop()
        try:
            self._attempt("give back", self._give_back_if_stopping_or_stalled)
            self._collect()
            self._record_the_last()
            self.held.abandon(self.statements)
            self._attempt("dependencies", self._settle)
            self._attempt("presence", lambda: self.presence.leave(self.statements))
            if not self.unstarted:
                self.begun.sign_off()
            self.connection.close()
        except psycopg.Error as error:
            logger.warning("database error worker=%s while leaving: %s", self.id, error)
        for background in self.background:
            background.stop()
        self.waker.close()
        if self.watch is not None:
            self.watch.write()
        if self.backend.settings.traces:
            traces.flush()
        self.begun.leave()
        logger.info("stopped worker=%s abandoned=%s", self.id, len(self.held))
        if self.held:
            return 1
        return RECYCLED if self.retiring else 0
