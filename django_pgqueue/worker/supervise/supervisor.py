"""Starts worker processes, starts them again when they crash, and stops them together."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_pgqueue.consumer.errors import CONNECTION_ERRORS, first_line
from django_pgqueue.consumer.forks import end_children, flush_streams, guarded
from django_pgqueue.consumer.wakeup import readable
from django_pgqueue.exceptions import OutdatedQueue
from django_pgqueue.worker.health.monitor import Monitor
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.run.marks import Marks
from django_pgqueue.worker.settings import RECYCLED_EXIT_CODE as RECYCLED
from django_pgqueue.worker.supervise import exit_handlers, log_listeners
from django_pgqueue.worker.supervise.signal_handlers import Requests, blocked, handling
from django_pgqueue.worker.upkeep.retirement import Retirement, retiring_pids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgqueue.worker.health.reporter import Reporter
    from django_pgqueue.worker.health.server import Exposed
    from django_pgqueue.worker.run.marks import Death
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

STABLE_SECONDS = 10.0
"""A crash after a longer life has a reason of its own.  After shorter lives each restart waits longer."""
MAX_RESTART_SECONDS = 30.0
MAX_QUARANTINE = 4
"""At most this many quarantined messages run at a time, each in a process of its own."""
FORK_AGAIN_SECONDS = 1.0
KILL_SECONDS = 5.0
"""A process that is still there this long after its grace hangs in a call that does not end: it is killed."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STOP_NOW = signal.SIGUSR1
"""The signal that the supervisor sends to its processes when it is asked to stop a second time."""
CRASHED = "crashed pid=%s code=%s lived_seconds=%.1f%s"


@dataclass(slots=True, eq=False)
class Process:
    pid: int
    started: float
    seat: int | None
    """Its number on the board of the monitoring.  A process of the quarantine has none."""
    marks: Marks


@dataclass(slots=True, eq=False)
class ProcessPlace:
    """The place of one process that should be there, with the processes before it that still have jobs to end."""

    retirement: Retirement
    process: Process | None = None
    retiring: list[Process] = field(default_factory=list)
    start_at: float = 0.0
    crashes: int = 0

    @property
    def processes(self) -> list[Process]:
        return [*self.retiring, *([self.process] if self.process is not None else [])]

    @property
    def is_idle(self) -> bool:
        """Whether the place has no process, and will get none."""
        return not self.processes and self.start_at == float("inf")

    def retire(self) -> None:
        """Lets its process end what it has begun.  The next one may start."""
        if self.process is not None:
            self.retiring.append(self.process)
            self.process, self.start_at = None, 0.0
            self.retirement.set_retiring(len(self.retiring))

    def left(self, process: Process) -> None:
        if process is self.process:
            self.process = None
        else:
            self.retiring.remove(process)
            self.retirement.set_retiring(len(self.retiring))


class Supervisor:
    """Forks before the program has connected or started a thread, and then only waits for its children."""

    stop_signals: tuple[signal.Signals, ...] = STOP_SIGNALS

    def __init__(self, settings: WorkerSettings, *, exposed: Exposed | None = None) -> None:
        """``exposed`` returns what is served at /metrics."""
        self.settings = settings
        self.news = pipe()
        """The pipe on which processes report that they retire."""
        self.places = [ProcessPlace(Retirement(self.news[1])) for _ in range(settings.processes)]
        self.quarantine = [ProcessPlace(Retirement(self.news[1]), start_at=float("inf")) for _ in range(MAX_QUARANTINE)]
        """Without processes, as long as nothing is quarantined."""
        self.deaths: list[Death] = []
        """Deaths that no process has recorded yet."""
        self.died = 0
        self.requests = Requests()
        self.stops_asked = 0
        self.kill_at = float("inf")
        self.code = 0
        self.monitor = Monitor(settings, exposed) if settings.is_watched else None

    def run(self) -> int:
        """Returns the exit code: 0 when every process ended well."""
        connections.close_all()
        gc.collect()  # the processes keep what is there when they begin
        read, write = pipe()
        with handling(self.stop_signals, self._asked_to_stop), handling([signal.SIGCHLD], lambda *_: None):
            before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
            try:
                while self._work_is_left():
                    self._start_missing()
                    self._be_watched()
                    readable([read, self.news[0]], self._seconds_until_start())
                    with contextlib.suppress(BlockingIOError):
                        os.read(read, 4096)
                    self._look_after_processes()
                    self._let_leave_if_idle()
                    self._kill_if_overdue()
            finally:
                signal.set_wakeup_fd(before)
                for file in (read, write, *self.news):
                    os.close(file)
                if self.monitor is not None:
                    self.monitor.close()
        return self.code

    @property
    def all_places(self) -> list[ProcessPlace]:
        return [*self.places, *self.quarantine]

    def _work_is_left(self) -> bool:
        return any(not place.is_idle for place in self.all_places)

    def _start_missing(self) -> None:
        # A signal in between would find a child whose pid is not noted yet, or one that still has the supervisor's
        # handlers.
        with blocked({*STOP_SIGNALS, *self.stop_signals}):
            now = time.monotonic()
            for place in self.all_places:
                if place.process is None and place.start_at <= now:
                    seat = None
                    if self.monitor is not None and place not in self.quarantine:
                        seat = self.monitor.free_seat()
                    try:
                        place.process = self._fork(place, seat, now)
                    except OSError as error:  # no memory, or too many processes: the others go on
                        logger.error("no process can be started: %s", error)  # noqa: TRY400
                        place.start_at = now + FORK_AGAIN_SECONDS
                        continue
                    if self.monitor is not None and seat is not None:
                        self.monitor.began(seat, place.process.pid)

    def _be_watched(self) -> None:
        if self.monitor is not None:
            with blocked({*STOP_SIGNALS, *self.stop_signals}):
                self.monitor.turned(stopping=bool(self.stops_asked))

    def _fork(self, place: ProcessPlace, seat: int | None, now: float) -> Process:
        flush_streams()
        supervisor = os.getpid()
        settings = self.settings.of_quarantine if place in self.quarantine else self.settings
        marks = Marks(settings.threads)
        pid = os.fork()
        if pid == 0:
            try:
                reporter = None if self.monitor is None or seat is None else self.monitor.reporter(seat)
                os._exit(
                    work(
                        settings,
                        supervisor,
                        reporter=reporter,
                        retirement=place.retirement,
                        marks=marks,
                        died=self.deaths,
                        stops_parent=self.stop_signals[0],
                    )
                )
            finally:  # never back into the supervisor's code
                os._exit(70)
        return Process(pid, now, seat, marks)

    def _look_after_processes(self) -> None:
        # A signal in between would stop the processes that are there, and this code would then start another one.
        with blocked({*STOP_SIGNALS, *self.stop_signals}):
            self._let_retire()  # before _reap(): a process may have reported it, and then left
            self._reap()
            if os.getpid() == 1:
                reap_orphans({process.pid for place in self.all_places for process in place.processes} | self._watching)
            self._open_quarantine_if_wanted()

    def _let_retire(self) -> None:
        pids = retiring_pids(self.news[0])
        for place in self.all_places:
            if place.process is not None and place.process.pid in pids and not self.stops_asked:
                if self.monitor is not None and place.process.seat is not None:
                    self.monitor.retires(place.process.seat)
                place.retire()

    @property
    def _watching(self) -> set[int]:
        return {self.monitor.pid} if self.monitor is not None and self.monitor.pid is not None else set()

    def _reap(self) -> None:
        for place in self.all_places:
            for process in place.processes:
                pid, status = os.waitpid(process.pid, os.WNOHANG)
                if pid:
                    code = os.waitstatus_to_exitcode(status)
                    if self.monitor is not None:
                        self.monitor.ended(process.seat, code)
                    self._ended(place, process, code)

    def _ended(self, place: ProcessPlace, process: Process, code: int) -> None:
        lived = time.monotonic() - process.started
        is_replaced = process is not place.process
        is_alone = place in self.quarantine
        # A job may have chosen any exit code.
        has_left = process.marks.has_left
        place.left(process)
        ran = self._bury(process)
        may_leave = is_alone or self.settings.leaves_after_seconds is not None
        if self.stops_asked or (may_leave and code in (0, 1) and has_left):  # 1: a burst that cannot claim
            is_well = code in (0, RECYCLED) or (is_alone and not self.stops_asked)
            self.code = max(self.code, 0 if is_well and has_left else 1)
            if code < 0 and self.kill_at < float("inf"):  # by somebody else than this supervisor
                logger.error(CRASHED, process.pid, code, lived, ": the process was stopping")
            if not is_replaced:
                place.start_at = float("inf")
            return
        if code == RECYCLED and has_left:
            if place.start_at == float("inf"):  # the others have left, but what this process has left is to be done
                place.start_at = 0.0
            return
        if is_replaced:
            logger.error(CRASHED, process.pid, code, lived, ": the process was retiring")
            return
        if is_alone and ran:  # a death is what the quarantine is for, and its messages have an end
            place.crashes = 0
        place.crashes = 1 if lived > STABLE_SECONDS else place.crashes + 1
        wait = 0.0 if place.crashes == 1 else min(MAX_RESTART_SECONDS, 0.5 * 2**place.crashes)
        place.start_at = time.monotonic() + wait
        logger.error(CRASHED, process.pid, code, lived, f" restart_in_seconds={wait:.1f}")

    # Idleness

    def _let_leave_if_idle(self) -> None:
        """Lets the processes leave when all of them are idle.  One that has just found something stays: then those that
        have left come back.
        """
        if self.settings.burst or self.settings.exit_when_idle_seconds is None or self.stops_asked:
            return
        processes = [process for place in self.all_places for process in place.processes]
        are_idle = all(process.marks.is_idle for process in processes)
        for process in processes:
            process.marks.let_leave(are_idle)
        for place in self.places:
            if not are_idle and place.is_idle:
                place.start_at = 0.0

    # Deaths, and the quarantine

    def _bury(self, process: Process) -> bool:
        """Takes note of what a dead process has left.  Returns whether something ran when it died."""
        self._forget_recorded(process)
        death = process.marks.death(self.died + 1)
        if death is None:
            return False
        self.died += 1
        self.deaths.append(death)
        return any(death.running)

    def _forget_recorded(self, process: Process) -> None:
        self.deaths = [death for death in self.deaths if death.number > process.marks.last_reported]

    def _open_quarantine_if_wanted(self) -> None:
        wanted = False
        for process in [process for place in self.all_places for process in place.processes]:
            self._forget_recorded(process)
            wanted = process.marks.take_wish() or wanted
        idle = [place for place in self.quarantine if place.is_idle]
        # One at a time: a worker that sees that more is due asks again.
        if len(idle) == len(self.quarantine):
            wanted = wanted or any(any(death.running) for death in self.deaths)
        if idle and wanted and not self.stops_asked:
            idle[0].start_at, idle[0].crashes = 0.0, 0

    def _seconds_until_start(self) -> float:
        missing = [place.start_at for place in self.all_places if place.process is None]
        return min(1.0, max(0.0, min(missing, default=float("inf")) - time.monotonic()))

    def _asked_to_stop(self, number: int = 0, *_: Any) -> None:
        if not self.requests.is_another(number) and self.stops_asked:
            return
        self.stops_asked += 1
        grace_seconds = self.settings.grace_seconds if self.stops_asked == 1 else 0
        self.kill_at = min(self.kill_at, time.monotonic() + grace_seconds + KILL_SECONDS)
        for place in self.all_places:
            if place.process is None:
                place.start_at = float("inf")
            for process in place.processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM if self.stops_asked == 1 else STOP_NOW)

    def _kill_if_overdue(self) -> None:
        if time.monotonic() < self.kill_at:
            return
        processes = [process for place in self.all_places for process in place.processes]
        for process in processes:  # before any line: perhaps nobody reads the log, and that is what they hang in
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            logger.error("killed pid=%s: it did not stop within its grace period", process.pid)
        self.kill_at = float("inf")


def reap_orphans(own: set[int]) -> None:
    """Ends processes for good that jobs have left behind: the first one of a container inherits them, and as long as it
    does not ask for their exit codes, they fill the table of processes.  ``own`` are left to who waits for them.
    """
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in own:
            os.waitpid(ended.si_pid, 0)


def work(
    settings: WorkerSettings,
    supervisor: int,
    *,
    reporter: Reporter | None,
    retirement: Retirement,
    marks: Marks,
    died: Sequence[Death],
    stops_parent: signal.Signals,
) -> int:
    """Runs a worker process in the forked child, and never goes back into the parent's code."""
    try:
        # What the program has loaded stays: to look at it with each full collection stops the slots, and took 6 % of
        # the time of a worker with short jobs and few libraries.
        gc.freeze()
        exit_handlers.leave_to_the_supervisor()
        log_listeners.start_again()
        connections.close_all()
        signal.set_wakeup_fd(-1)
        consumer = WorkerProcess(
            settings,
            parent=supervisor,
            reporter=reporter,
            retirement=retirement,
            marks=marks,
            died=died,
            stops_parent=stops_parent,
        )
        # Ctrl-C, and SIGTERM from some service managers, reach the whole process group, and the supervisor passes them
        # on.  A child may get the first request several times: only the supervisor knows whether there was a second
        # one.
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop(again=False))
        signal.signal(STOP_NOW, lambda *_: consumer.stop())
        # Not SIG_IGN, which the programs that a task starts would inherit.
        signal.signal(signal.SIGINT, lambda *_: None)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # by nohup: they shall
            signal.signal(signal.SIGHUP, lambda *_: None)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*STOP_SIGNALS, STOP_NOW})
        with guarded():
            return consumer.run()
    except CONNECTION_ERRORS as error:
        logger.error("database error worker pid=%s cannot start: %s", os.getpid(), first_line(error))  # noqa: TRY400
        return 70
    except OutdatedQueue as error:  # the migrations were taken back since the supervisor looked
        logger.error("worker pid=%s cannot start: %s", os.getpid(), error)  # noqa: TRY400
        return 70
    except BaseException:  # noqa: BLE001 -- whatever it was, the supervisor decides
        traceback.print_exc()
        return 70
    finally:
        end_children()
        exit_handlers.run()
        flush_streams()


def pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write
