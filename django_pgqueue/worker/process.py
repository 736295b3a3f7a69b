"""One worker process: claims messages, lets the slots run them, records how they ended."""

from __future__ import annotations

import logging
import os
import time
from functools import partial
from typing import TYPE_CHECKING, cast

import psycopg

from django_pgqueue import functions, traces
from django_pgqueue.compat import task_backends
from django_pgqueue.consumer.background import Background
from django_pgqueue.consumer.loop import Loop
from django_pgqueue.consumer.parts import Parts
from django_pgqueue.consumer.polling import Polling
from django_pgqueue.consumer.session import Session
from django_pgqueue.consumer.wakeup import Wakeup
from django_pgqueue.tasks import registry
from django_pgqueue.worker.claim.claimer import Claimer
from django_pgqueue.worker.claim.held import Heartbeats, Held, ProgressReports
from django_pgqueue.worker.claim.registration import Registration
from django_pgqueue.worker.claim.unknown import Unknown
from django_pgqueue.worker.claim.versions import Versions
from django_pgqueue.worker.health.reporter import NoReporter, Reporter
from django_pgqueue.worker.record.log import log_end
from django_pgqueue.worker.record.recorder import RECORD_WITHIN_SECONDS, Recorder
from django_pgqueue.worker.run.clock import DatabaseClock
from django_pgqueue.worker.run.marks import Marks
from django_pgqueue.worker.run.threads import Slots
from django_pgqueue.worker.settings import RECYCLED_EXIT_CODE
from django_pgqueue.worker.upkeep import deaths
from django_pgqueue.worker.upkeep.maintenance import Maintenance
from django_pgqueue.worker.upkeep.recycling import Recycling
from django_pgqueue.worker.upkeep.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.consumer.background import Duty
    from django_pgqueue.worker.run.marks import Death
    from django_pgqueue.worker.run.outcome import EndedAttempt
    from django_pgqueue.worker.settings import WorkerSettings
    from django_pgqueue.worker.upkeep.retirement import Retirement

logger = logging.getLogger("django_pgqueue.worker")

ROW_WAIT_MS = 50
"""A statement of the process's thread waits this long for a lock of another session: everything else in the process
waits with it."""
STATEMENT_MS = 60_000
BACKGROUND_ROW_WAIT_MS = 200


class WorkerProcess:
    """One worker process.  ``run`` is its life, and ``turn`` is one round of it.

    The process's thread claims and records.  The slots only run tasks.  Background threads do what may have to wait for
    other sessions.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        parent: int | None = None,
        reporter: Reporter | None = None,
        retirement: Retirement | None = None,
        marks: Marks | None = None,
        died: Sequence[Death] = (),
    ) -> None:
        """``parent``: the pid of the process that started this one.  ``reporter`` publishes the numbers of this
        process.  ``marks``: memory that the supervisor reads when this process has died.  ``died``: dead processes,
        whose deaths this one records.
        """
        self.settings = settings
        self.parent = parent
        self.reporter = reporter or NoReporter()
        self.marks = marks or Marks(settings.threads)
        self.died = died
        self.backend = cast("PgQueueBackend", task_backends[settings.backend])
        self.registration = Registration(settings, None if settings.quarantine else self.marks, problem=self._problem)
        self.polling = Polling(listen=settings.listen)
        self.wakeup = Wakeup()
        self.session = Session(
            self.backend.settings.database,
            consumer=self.registration.id,
            pooled=not settings.listen,
            notified=self.polling.notified,
            row_wait_ms=ROW_WAIT_MS,
            statement_ms=STATEMENT_MS,
            renamed=self._renamed,
            parked=self._parked,
        )
        self.versions = Versions(self.session, self.backend.settings.version)
        self.unknown = Unknown(
            settings,
            self.session,
            fail_after_seconds=self.backend.settings.unknown_task_seconds,
            polling=self.polling,
            versions=self.versions,
            changed=self._be_seen_soon,
        )
        self.registration.lacks = lambda: self.unknown.lacks
        self.registration.version = self.versions.own
        self.registration.on_seen = lambda company: self.unknown.seen(has_parked=company.has_parked)
        self.parts = Parts(self.session)
        self.loop = Loop(
            self.session, self.polling, self.wakeup, on_reconnect=self._reconnected, on_back_off=self._backed_off
        )
        self.recycling = Recycling(settings, retirement)
        self.held = Held(settings, self.session, self.parts)
        self.upkeep = Upkeep(settings, self.session, self.parts, polling=self.polling)
        self.maintenance = Maintenance(history_days=settings.history_days)
        self.clock = DatabaseClock()
        self.slots = Slots(
            self.settings.threads,
            backend=self.backend,
            clock=self.clock,
            wakeup=self.wakeup,
            on_end=partial(log_end, settings=self.backend.settings),
            marks=self.marks,
            idle_seconds=settings.idle_seconds,
        )
        self.recorder = Recorder(self.session, announce=self.slots.announce, on_recorded=self._recorded)
        self.claimer = Claimer(
            self.settings,
            self.session,
            self.parts,
            slots=self.slots,
            held=self.held,
            unfinished=self.unfinished,
            polling=self.polling,
            registration=self.registration,
            unknown=self.unknown,
            versions=self.versions,
            may_take=self.recycling.room,
            settle=self.upkeep.settle,
            schedules=self.upkeep.scheduler.fired,
            on_claim=self.reporter.claimed,
        )
        self.background = [
            self._beside("heartbeats", Heartbeats(self.settings, self.held), ProgressReports(self.slots.reports)),
            self._beside("upkeep", self.maintenance),
        ]
        self.is_started = False
        self.retiring = False
        """Another process has taken its place: this one ends what it has begun, and leaves."""
        self.stop_by: float | None = None
        self.stop_now = self.stopping = False
        self._former_ids: list[str] = []

    @property
    def id(self) -> str:
        return self.registration.id

    # The life of a process

    def run(self) -> int:
        """Works until it is asked to stop or, where the settings say so, until it is idle.  Returns the exit code."""
        self._start()
        while not self._is_finished():
            self._report()
            self._stop_if_asked()  # even while the database is away: to open the session again may take long
            self.loop.turn(self.turn, self.due_at)
            if self.parent not in (None, os.getppid()) and self.stop_by is None:
                logger.error("worker=%s has lost its supervisor", self.id)
                self.stop()
        return self._leave()

    def turn(self) -> None:
        """Takes what the slots have ended, records it, does the upkeep that is due, and claims more."""
        self._claim_if_woken()
        self._look_after_slots()
        self._collect()
        if not self.session.is_closed:
            # First, because ends free channels and dependants.
            self.recorder.write_if_due(now=time.monotonic(), busy=self.unfinished() > 0)
            self._look_after_held()
            self._retire_if_due()
            self._do_upkeep_if_due()
            self._claim_if_due()

    def due_at(self) -> float:
        """Returns when the next turn is due, by the monotonic clock."""
        if self._is_finished():
            return 0.0
        if self.session.is_closed:  # everything else waits for the session
            reconnect_at = self.session.reconnect_at
            return min(self.slots.next_timeout(), reconnect_at, self.stop_by or reconnect_at)
        busy = self.unfinished() - len(self.slots.done) > 0
        due = [self.slots.next_timeout(), self.recorder.due_at(busy=busy), self.held.attention_is_due_at()]
        due += [self.claimer.attention_is_due_at(), *(one.due_at() for one in self.background)]
        if self.slots.done:
            due.append(time.monotonic() + (RECORD_WITHIN_SECONDS if busy else 0))
        if self.stop_by is not None:
            due.append(self.stop_by)
        elif not self.retiring:
            due += [self.upkeep.due_at(), self.claimer.due_at()]
            due.append(self.parts.due_at("unknown tasks", self.unknown.due_at()))
        return min(due)

    def stop(self, *, again: bool = True) -> None:
        """Asks the process to stop: it begins nothing new, and running jobs may end within the grace.  A second call
        stops it now, unless ``again=False`` marks it as the same request.  A signal handler may call it.
        """
        if self.stop_by is None:
            self.stop_by = time.monotonic() + self.settings.grace_seconds
        elif again:
            self.stop_now = True
        self.wakeup.wake()

    @property
    def is_leaving(self) -> bool:
        """Whether the process claims nothing more."""
        return self.retiring or self.stop_by is not None

    def unfinished(self) -> int:
        """Returns how many held messages have not ended."""
        return len(self.held) - len(self.recorder)

    def _is_finished(self) -> bool:
        if self.stop_by is None:
            return (self._is_idle_for_long() or self.retiring) and not self._is_busy()
        return self.stop_now or not self._is_busy() or time.monotonic() > self.stop_by

    def _is_idle_for_long(self) -> bool:
        """Whether to leave.  A burst leaves by itself.  Otherwise the processes of a worker leave together."""
        return self.claimer.idleness.is_over and (self.settings.burst or self.parent is None or self.marks.may_leave)

    def _is_busy(self) -> bool:
        return bool(self.held) or self.slots.busy_aside()

    # The start

    def _start(self) -> None:
        registry.autodiscover()
        self.session.open()
        functions.require_queue(self.session.statements, self.session.database)
        deaths.report(self.session, self.died, self.marks)
        self.marks.sign_on(self.id)
        self.clock.start(functions.now(self.session.statements))
        self.is_started = True
        logger.info("started worker=%s slots=%s queues=%s", self.id, self.settings.threads, self.settings.served)

    def _beside(self, name: str, *duties: Duty) -> Background:
        return Background(
            name,
            duties,
            database=self.session.database,
            worker=self.id,
            pooled=self.session.pooled,
            row_wait_ms=BACKGROUND_ROW_WAIT_MS,
        )

    # The steps of a turn

    def _claim_if_woken(self) -> None:
        """Claims before anything else in the turn: a message waits for this worker, which holds no other."""
        if self.polling.hurries and not self.held and not self.session.is_closed:
            self._claim_if_due()

    def _claim_if_due(self) -> None:
        if not self.is_leaving:
            self.claimer.claim_if_due()

    def _look_after_held(self) -> None:
        self.claimer.give_back_if_due(stopping=self.stop_by is not None)
        self.held.look_after(self.slots.cancel)

    def _do_upkeep_if_due(self) -> None:
        self.claimer.availability.be_seen_if_due(stopping=self.is_leaving)
        if self.is_leaving:
            self.upkeep.leave()
        else:
            self.upkeep.do_if_due()
            self.parts.attempt("unknown tasks", self.unknown.look_if_due)

    def _look_after_slots(self) -> None:
        for background in self.background:
            background.start_if_due()
        died = self.recycling.look_after(self.slots, patience_seconds=self.settings.grace_seconds)
        if died is not None:
            logger.error("slot died worker=%s: %s; the supervisor replaces the process", self.id, died)

    def _collect(self) -> None:
        """Takes the ended attempts from the slots."""
        if ends := self.slots.take_done():
            self.claimer.learn(ends)
            self.recycling.jobs += len(ends)
            self.recorder.add(ends, now=time.monotonic())

    def _recorded(self, ends: list[EndedAttempt], otherwise: dict[tuple[int, int], str]) -> None:
        self.reporter.recorded(ends, otherwise)
        self.claimer.recorded(ends)

    def _retire_if_due(self) -> None:
        if self.is_leaving:
            return
        reason = self.recycling.retire(unfinished=self.unfinished())
        if reason is not None:
            self.retiring = True
            if self.recycling.is_stuck:  # more may be stuck: other workers begin at once what this one has not begun
                self.claimer.take_back()
            running = self.unfinished() - len(self.claimer.unstarted)
            logger.info("retiring worker=%s running=%s: %s", self.id, running, reason)

    # Monitoring

    def _report(self) -> None:
        if self.settings.exit_when_idle_seconds is not None:
            self.marks.be_idle(self.claimer.idleness.is_over and not self._is_busy())
        self.reporter.turned(
            running=self.unfinished(),
            connected=not self.session.is_closed,
            stopping=self.stop_by is not None,
            blocked_seconds=self.recycling.watchdog.blocked_seconds,
            died=self.recycling.watchdog.died,
        )

    def _problem(self) -> str | None:
        """Returns what the process cannot do at present, for qdoctor."""
        problems = self.parts.problems
        for background in self.background:
            problems += [f"{name}: {why}" for name, why in list(background.problems.items())]
        problems += list(self.maintenance.problems.values())
        return "; ".join(problems) or None

    def _parked(self) -> None:
        self.unknown.told()

    def _be_seen_soon(self) -> None:
        self.registration.next_seen = 0.0

    # The connection

    def _reconnected(self) -> None:
        self.registration.next_seen = 0.0
        self.slots.reconnects += 1
        for name in self._former_ids:
            functions.worker_gone(self.session.statements, name)
        self._former_ids = []
        self.reporter.reconnected()

    def _renamed(self) -> str:
        """Renames the worker after the server was restarted, or another one has taken over.  Such a server may have
        lost its last commits, and may give their ids to other messages.  With a new name, no end of a message held here
        can be taken for the end of another one.
        """
        before = self.registration.rename()
        self._former_ids.append(before)
        self.marks.sign_on(self.id)
        self.upkeep.scheduler.renamed(self.id)
        logger.warning(
            "the connection leads to another server, or the server was restarted: worker=%s goes on as worker=%s",
            before,
            self.id,
        )
        return self.id

    def _backed_off(self, seconds: float) -> None:
        self.recorder.pause(seconds, now=time.monotonic())

    # The end

    def _stop_if_asked(self) -> None:
        if self.stop_by is None or self.stopping:
            return
        self.stopping = True
        self.claimer.take_back()
        logger.info(
            "stopping worker=%s running=%s grace_seconds=%s",
            self.id,
            self.unfinished() - len(self.claimer.unstarted),
            self.settings.grace_seconds,
        )

    def _leave(self) -> int:
        self.slots.stop()
        try:
            self.claimer.give_back_if_due(stopping=self.stop_by is not None)
            self._collect()
            self.recorder.write_the_last(pause=self.wakeup.pause, is_hurried=lambda: self.stop_now)
            self.held.abandon()
            self.parts.attempt("dependencies", self.upkeep.settle)
            self.claimer.availability.leave()
            self.parts.attempt("presence", lambda: self.registration.leave(self.session.statements))
            if not self.claimer.has_left_something:
                self.marks.sign_off()
            self.session.connection.close()
        except psycopg.Error as error:
            logger.warning("database error worker=%s while leaving: %s", self.id, error)
        for background in self.background:
            background.stop()
        self.wakeup.close()
        self.reporter.write()
        if self.backend.settings.traces:
            traces.flush()
        self.marks.leave()
        logger.info("stopped worker=%s abandoned=%s", self.id, len(self.held))
        if self.held:
            return 1
        return RECYCLED_EXIT_CODE if self.retiring else 0
