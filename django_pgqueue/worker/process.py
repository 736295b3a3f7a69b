"""One worker process: claims messages, lets the slots run them, records how they ended."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import TYPE_CHECKING, cast

import psycopg

from django_pgqueue import functions, traces
from django_pgqueue.compat import task_backends
from django_pgqueue.consumer.connection import answer_seconds
from django_pgqueue.consumer.errors import first_line, is_of_no_use
from django_pgqueue.consumer.hold import Hold
from django_pgqueue.consumer.loop import Loop
from django_pgqueue.consumer.parts import Parts
from django_pgqueue.consumer.polling import Polling
from django_pgqueue.consumer.session import Session
from django_pgqueue.consumer.wakeup import Wakeup
from django_pgqueue.tasks import registry
from django_pgqueue.worker.beside import UPKEEP, Beside
from django_pgqueue.worker.claim.claimer import Claimer
from django_pgqueue.worker.claim.held import Heartbeats, ProgressReports
from django_pgqueue.worker.claim.registration import Registration
from django_pgqueue.worker.health.reporter import NoReporter, Reporter
from django_pgqueue.worker.phase import Phase
from django_pgqueue.worker.record.log import EndLog
from django_pgqueue.worker.record.recorder import Recorder
from django_pgqueue.worker.run.clock import DatabaseClock
from django_pgqueue.worker.run.marks import Marks
from django_pgqueue.worker.run.slots import Slots
from django_pgqueue.worker.settings import RECYCLED_EXIT_CODE
from django_pgqueue.worker.upkeep import deaths
from django_pgqueue.worker.upkeep.orders import Orders
from django_pgqueue.worker.upkeep.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.worker.run.marks import Death
    from django_pgqueue.worker.run.outcome import EndedAttempt
    from django_pgqueue.worker.settings import WorkerSettings
    from django_pgqueue.worker.upkeep.retirement import Retirement

logger = logging.getLogger("django_pgqueue.worker")

ROW_WAIT_MS = 50
"""A statement of the process's thread waits this long for a lock of another session: everything else in the process
waits with it."""
STATEMENT_MS = 60_000
LEAVE_SECONDS = 4.0
"""How long a process that has to leave waits for an answer: the supervisor kills it five seconds after its grace."""
LEAVE_AGAIN_SECONDS, PAUSE_SECONDS = 0.5, 0.1
"""For how long it tries again where its session breaks meanwhile, because a pooler was started again, say."""


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
        stops_parent: signal.Signals = signal.SIGTERM,
    ) -> None:
        """``parent``: the pid of the process that started this one, which ``stops_parent`` asks to stop.  ``reporter``
        publishes the numbers of this process.  ``marks``: memory that the supervisor reads when this process has died.
        ``died``: dead processes, whose deaths this one records.
        """
        self.settings = settings
        self.parent = parent
        self.reporter = reporter or NoReporter()
        self.marks = marks or Marks(settings.threads)
        self.died = died
        self.stops_parent = stops_parent
        self.options = cast("PgQueueBackend", task_backends[settings.backend]).settings
        self.phase = Phase(settings.grace_seconds)
        self.registration = Registration(settings, self.marks, problem=self._problem)
        self.polling = Polling(listen=settings.listen)
        self.wakeup = Wakeup()
        self.session = Session(
            self.options.database,
            consumer=self.registration.id,
            pooled=not settings.listen,
            notified=self.polling.notified,
            parked=self._parked,
            row_wait_ms=ROW_WAIT_MS,
            statement_ms=STATEMENT_MS,
            answer_seconds=self._answer_seconds,
            renamed=self._renamed,
        )
        self.parts = Parts(self.session)
        self.loop = Loop(
            self.session, self.polling, self.wakeup, on_reconnect=self._reconnected, on_back_off=self._backed_off
        )
        self.clock = DatabaseClock()
        self.slots = Slots(
            settings.threads,
            backend=cast("PgQueueBackend", task_backends[settings.backend]),
            clock=self.clock,
            wakeup=self.wakeup,
            on_end=EndLog(self.options),
            marks=self.marks,
            idle_seconds=settings.idle_seconds,
        )
        self.recorder = Recorder(self.session, announce=self.slots.announce, on_recorded=self._recorded)
        self.upkeep = Upkeep(settings, self.session, self.parts, polling=self.polling, retirement=retirement)
        hold = Hold()
        self.registration.hold = lambda name: hold.take(self.session, name)
        self.registration.on_missed = self.upkeep.gone.misses_one
        self.registration.on_edit = self.upkeep.edits.wanted
        self.claimer = Claimer(
            settings,
            self.session,
            self.parts,
            slots=self.slots,
            polling=self.polling,
            registration=self.registration,
            options=self.options,
            unrecorded=self.recorder.__len__,
            may_take=self._may_take,
            settle=self.upkeep.settle,
            schedules=self.upkeep.scheduler.fired,
            on_claim=self.reporter.claimed,
            meanwhile=self._collect_and_prepare,
        )
        self.orders = Orders(
            settings.threads,
            pause=self.claimer.give_back.take_back,
            resume=self.polling.notified,
            stop=self._stop_worker,
            resize=self._resize,
        )
        self.registration.on_order = lambda company: self.orders.read(company, worker=self.id)
        self.held, self.unfinished = self.claimer.held, self.claimer.unfinished
        self.heartbeats = Heartbeats(settings, self.held)
        self.beside = Beside(
            self.session,
            {
                "heartbeats": [self.heartbeats, ProgressReports(self.slots.reports)],
                UPKEEP: [self.upkeep.edits, self.upkeep.maintenance, self.upkeep.vacuum, self.upkeep.rollup],
            },
        )
        self.is_started = False

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
            if self.parent not in (None, os.getppid()) and not self.phase.is_stopping:
                logger.error("worker=%s has lost its supervisor", self.id)
                self.stop()
        return self._leave()

    def turn(self) -> None:
        """Takes what the slots have ended, records it, does the upkeep that is due, and claims more."""
        self._claim_if_woken()
        self._look_after_slots()
        self._collect()
        if not self.session.is_left_alone:
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
        stop_by = float("inf") if self.phase.stop_by is None else self.phase.stop_by
        if self.session.is_left_alone:  # everything else waits for the session
            return min(self.slots.limits.next_timeout(), self.session.reconnect_at, stop_by)
        busy = self.unfinished() - len(self.slots.done) > 0
        due = [stop_by, self.slots.limits.next_timeout(), self.beside.due_at(), self.held.attention_is_due_at()]
        due += [self.recorder.due_at(busy=busy, ended=len(self.slots.done)), self.claimer.attention_is_due_at()]
        if not self.phase.is_leaving:
            next_claim = self.registration.next_seen if self.orders.is_paused else self.claimer.due_at()
            due += [self.upkeep.due_at(), next_claim]
        return min(due)

    def stop(self, *, again: bool = True) -> None:
        """Asks the process to stop: see ``Phase``.  A signal handler may call it."""
        self.phase.stop(again=again)
        self.wakeup.wake()

    def _is_finished(self) -> bool:
        if self.phase.is_stopping:
            return self.phase.has_to_end or not self._is_busy()
        return (self._is_idle_for_long() or self._cannot_claim or self.phase.is_retiring) and not self._is_busy()

    @property
    def _cannot_claim(self) -> bool:
        """Whether to leave with an exit code: who starts a burst again and again would have more and more that wait."""
        return self.settings.burst and self.parts.fails_again("claim")

    def _is_idle_for_long(self) -> bool:
        """Whether to leave.  A burst leaves by itself.  Otherwise the processes of a worker leave together."""
        return self.claimer.idleness.is_over and (self.settings.burst or self.parent is None or self.marks.may_leave)

    def _is_busy(self) -> bool:
        return bool(self.held) or self.slots.aside.are_busy()

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

    # The steps of a turn

    def _claim_if_woken(self) -> None:
        """Claims before anything else in the turn: a message waits for this worker, which holds no other."""
        if self.polling.hurries and not self.held and not self.session.is_left_alone:
            self._claim_if_due()

    def _may_take(self, unfinished: int) -> int:
        """Takes nothing while ends cannot be recorded: after a crash of this process they would all run again."""
        return 0 if self.recorder.fails else self.upkeep.recycling.room(unfinished)

    def _claim_if_due(self) -> None:
        if not (self.phase.is_leaving or self.orders.is_paused):
            self.claimer.claim_if_due()

    def _look_after_held(self) -> None:
        self.claimer.give_back.do_if_due(stopping=self.phase.is_stopping)
        self.held.look_after(self._stand_in, self.slots.cancel)

    def _stand_in(self, session: Session) -> None:
        self.heartbeats.stand_in(session, busy_since=self.beside.busy_since("heartbeats"))

    def _do_upkeep_if_due(self) -> None:
        claims_nothing = self.phase.is_leaving or self.orders.is_paused
        self.claimer.availability.be_seen_if_due(stopping=claims_nothing)
        if self.registration.former_ids:
            self.parts.do("former names", lambda: self.registration.delete_former(self.session.statements))
        if self.phase.is_leaving:
            self.upkeep.leave()
        else:
            self.upkeep.do_if_due()
            if not self.orders.is_paused:
                self.claimer.look_at_parked_if_due()

    def _look_after_slots(self) -> None:
        self.beside.start_if_due()
        self.slots.start()
        died = self.upkeep.recycling.look_after(self.slots, patience_seconds=self.settings.grace_seconds)
        if died is not None:
            logger.error("slot died worker=%s: %s; the supervisor replaces the process", self.id, died)

    def _collect(self) -> None:
        """Takes the ended attempts from the slots."""
        if ends := self.slots.take_done():
            self.recorder.add(ends, now=time.monotonic())  # first: they are recorded, even if the rest raises
            self.upkeep.recycling.jobs += len(ends)
            self.claimer.learn(ends)

    def _collect_and_prepare(self) -> None:
        self._collect()
        self.recorder.prepare()

    def _recorded(self, ends: list[EndedAttempt], otherwise: dict[tuple[int, int], str]) -> None:
        self.reporter.recorded(ends, otherwise)
        if "lost" in otherwise.values():  # perhaps the server crashed, which a pooler hides
            self.session.begin_to_flush()
        self.claimer.recorded(ends)
        self.upkeep.vacuum.jobs += len(ends)
        self.upkeep.rollup.ended()

    def _retire_if_due(self) -> None:
        if self.phase.is_leaving:
            return
        recycling = self.upkeep.recycling
        if (reason := recycling.retire(unfinished=self.unfinished())) is not None:
            self.phase.is_retiring = True
            if recycling.is_stuck:  # more may be stuck: other workers begin at once what this one has not begun
                self.claimer.give_back.take_back()
            logger.info("retiring worker=%s running=%s: %s", self.id, self.claimer.running(), reason)

    # Orders

    def _stop_worker(self) -> None:
        """Stops the process, and those of the same supervisor, which would start another one in its place."""
        if self.parent is None:
            self.stop(again=False)
        else:
            os.kill(self.parent, self.stops_parent)

    def _resize(self, slots: int) -> None:
        self.slots.resize(slots)
        self.registration.slots = self.upkeep.recycling.slots = slots
        self.claimer.prefetch.resize(slots)
        self.registration.be_seen_soon()
        self.polling.notified()

    # Monitoring

    def _report(self) -> None:
        if self.settings.exit_when_idle_seconds is not None:
            self.marks.be_idle(self.claimer.idleness.is_over and not self._is_busy())
        watchdog = self.upkeep.recycling.watchdog
        self.reporter.turned(
            running=self.unfinished(),
            connected=not self.session.is_closed,
            stopping=self.phase.is_stopping,
            blocked_seconds=watchdog.blocked_seconds,
            died=watchdog.died,
        )

    def _problem(self) -> str | None:
        """Returns what the process cannot do at present, for qdoctor."""
        problems = [*self.parts.problems, *self.beside.problems, *self.upkeep.maintenance.problems.values()]
        return "; ".join(problems) or None

    # The connection

    def _answer_seconds(self) -> float:
        """With a session that hangs, a process that is to stop would be killed, and what has ended run again.  So it
        leaves time for another session.
        """
        return min(answer_seconds(), max(LEAVE_SECONDS, self.phase.left_seconds / 2))

    def _reconnected(self) -> None:
        self.registration.be_seen_soon()
        self.upkeep.gone.reconnected()
        self.slots.reconnects += 1
        self.reporter.reconnected()

    def _parked(self) -> None:
        self.claimer.unknown.told()

    def _renamed(self) -> str:
        """Called when the connection leads to another server than before."""
        self.upkeep.scheduler.renamed(self.registration.rename())
        return self.id

    def _backed_off(self, seconds: float) -> None:
        self.recorder.pause(seconds, now=time.monotonic())
        self.slots.connect_first.turn_on()
        if self.session.is_closed:
            self.slots.close_idle_connections()

    # The end

    def _stop_if_asked(self) -> None:
        if self.phase.begins_to_stop():
            self.claimer.give_back.take_back()
            logger.info(
                "stopping worker=%s running=%s grace_seconds=%s",
                self.id, self.claimer.running(), self.settings.grace_seconds,
            )  # fmt: skip

    def _leave(self) -> int:
        self.claimer.give_back.take_back()
        self.slots.stop()
        leave_by, again_until = time.monotonic() + LEAVE_SECONDS / 2, 0.0
        while (error := self._error_of_the_end()) is not None:
            again_until = again_until or min(time.monotonic() + LEAVE_AGAIN_SECONDS, leave_by)
            if time.monotonic() > again_until or not (self.held and self.session.is_closed):
                logger.warning("database error worker=%s while leaving: %s", self.id, first_line(error))
                break
            self.wakeup.pause(PAUSE_SECONDS)
        unrecorded = {end.message.id for end in self.recorder.unrecorded}
        self.held.tell_abandoned(not_begun=self.claimer.give_back.not_begun(), unrecorded=unrecorded)
        self.beside.stop()
        self.slots.join()
        self.wakeup.close()
        self.reporter.write()
        if self.options.traces:
            traces.flush()
        self.marks.leave()
        logger.info("stopped worker=%s abandoned=%s", self.id, len(self.held))
        if self.held or self._cannot_claim:
            return 1
        return RECYCLED_EXIT_CODE if self.phase.is_retiring else 0

    def _error_of_the_end(self) -> psycopg.Error | None:
        try:
            self._end()
        except psycopg.Error as error:
            if is_of_no_use(self.session.connection, error):
                self.session.connection.close()
            return error
        return None

    def _end(self) -> None:
        """Ends the business with the database."""
        try:
            self._collect()
            if self.session.is_closed and self.held:
                self.session.open()
            self.recorder.write_the_last(pause=self.wakeup.pause, is_hurried=lambda: self.phase.stops_now)
            self._collect()
            self.recorder.write()
            self.parts.leave_none_out()
            self.claimer.give_back.do_if_due(stopping=self.phase.is_stopping)
        finally:
            self.held.abandon(not_begun=self.claimer.give_back.not_begun())
        self.parts.do("dependencies", self.upkeep.settle)
        self.claimer.availability.leave()
        self.parts.do("presence", lambda: self.registration.leave(self.session.statements))
        if not self.claimer.give_back.has_left_something:
            self.marks.sign_off()
        self.session.connection.close()
