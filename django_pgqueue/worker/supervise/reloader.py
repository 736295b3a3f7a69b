"""Starts a worker anew in development, when the project's code changes, as ``runserver`` does.

Three kinds of processes, none of which has more than one thread::

    Reloader ──starts, and starts again──> ReloadedSupervisor ──forks──> workers, and a watcher

The watcher has imported the same modules as the workers.  It runs Django's autoreloader, and ends with an exit code of
its own when one of the files changes.  The supervisor then stops its workers as always: they begin nothing new, and
running jobs have their grace.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.utils import autoreload

from django_pgqueue.worker.supervise.signal_handlers import Requests, blocked, handling
from django_pgqueue.worker.supervise.supervisor import STOP_SIGNALS, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.worker.health.server import Exposed
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

CHANGED = 3
"""The exit code of Django's autoreloader, and so of these processes, when code has changed."""
STARTED_BY = "PGQUEUE_RELOADER"
"""The environment variable with the pid of the reloader that started a process, and with the time of that start."""
PASSED_ON = signal.SIGUSR2
"""The signal that the reloader sends when it is asked to stop.  Ctrl-C and many programs signal the whole process
group, and one request must not count twice: the second one means "now"."""


def is_started_by_reloader() -> bool:
    return os.environ.get(STARTED_BY, "").partition(" ")[0] == str(os.getppid())


class Reloader:
    """Runs this command again and again, in a process of its own."""

    def __init__(self) -> None:
        self.requests = Requests()
        self.stopped = False
        self.started_at = 0.0
        self.child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        with handling(STOP_SIGNALS, self._asked_to_stop):
            code = self._run_once()
            while not self.stopped and code == CHANGED:
                code = self._run_once()
                if code not in (0, CHANGED) and not self.stopped:
                    logger.error("the changed code cannot be run (exit code %s): waiting for the next change", code)
                    code = watch(lambda: not self.stopped, since=self.started_at)
        return 0 if code == CHANGED else code

    def _run_once(self) -> int:
        self.started_at = time.time()
        with blocked(STOP_SIGNALS):
            self.child = subprocess.Popen(
                [*autoreload.get_child_arguments()],
                env={**os.environ, STARTED_BY: f"{os.getpid()} {self.started_at}"},
                preexec_fn=_unblock,  # noqa: PLW1509 -- this process has no other threads
            )
        code = self.child.wait()
        self.child = None
        if self.stopped and code == -PASSED_ON:  # it had no handler yet: there is nothing to be ended
            return 0
        return code if code >= 0 else 128 - code

    def _asked_to_stop(self, number: int, *_: Any) -> None:
        if not self.requests.is_another(number) and self.stopped:
            return
        self.stopped = True
        if self.child is not None:
            self.child.send_signal(PASSED_ON)


class ReloadedSupervisor(Supervisor):
    """Stops when its reloader asks for it or is gone, and when its watcher sees a change."""

    stop_signals = (PASSED_ON,)

    def __init__(self, settings: WorkerSettings, *, exposed: Exposed | None = None) -> None:
        super().__init__(settings, exposed=exposed)
        self.reloader = os.getppid()
        self.started_at = float(os.environ[STARTED_BY].partition(" ")[2])
        self.watcher: int | None = None
        self.changed = False

    def run(self) -> int:
        # Not SIG_IGN, which the programs that a task starts would inherit.
        with handling(STOP_SIGNALS, lambda *_: None):
            self.watcher = self._fork_watcher()
            try:
                code = super().run()
            finally:
                if self.watcher is not None:
                    os.kill(self.watcher, signal.SIGKILL)
                    os.waitpid(self.watcher, 0)
        return CHANGED if self.changed else code

    def _fork_watcher(self) -> int:
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(watch(lambda: os.getppid() == supervisor, since=self.started_at))
            except BaseException:
                logger.exception("the watcher failed")
                os._exit(70)
        return pid

    def _reap(self) -> None:
        super()._reap()
        if self.watcher is not None:
            pid, status = os.waitpid(self.watcher, os.WNOHANG)
            if pid:
                self.watcher = None
                self._watcher_ended(os.waitstatus_to_exitcode(status))
        if os.getppid() != self.reloader and not self.stops_asked:
            logger.error("the reloader is gone")
            self._asked_to_stop()

    def _watcher_ended(self, code: int) -> None:
        if code != CHANGED:
            logger.error("the reloader watches the code no longer (exit code %s)", code)
        elif not self.stops_asked:
            logger.info("reloading: code has changed")
            self.changed = True
            self._asked_to_stop()


def watch(shall_go_on: Callable[[], bool], *, since: float) -> int:
    """Watches the files of the imported modules, templates and translations until one of them changes.

    Django's autoreloader would miss a change between the start of the process and its own first look.
    """
    reloader = autoreload.get_reloader()
    # Django's receivers would handle each change of a template without a restart, because they have emptied the cache
    # of their own process.
    reloader.notify_file_changed = autoreload.trigger_reload  # type: ignore[method-assign,assignment]
    autoreload.autoreload_started.send(sender=reloader)
    missed = True
    try:
        for _ in reloader.tick():
            if missed:  # only now: both would miss a change between this look and its own first one
                _reload_if_changed(reloader, since)
                missed = False
            if not shall_go_on():
                return 0
    except SystemExit as changed:
        return int(changed.code or 0)
    return 0


def _reload_if_changed(reloader: autoreload.BaseReloader, since: float) -> None:
    for file in reloader.watched_files():
        with contextlib.suppress(OSError):
            if since < Path(file).stat().st_mtime <= time.time():  # not a file dated ahead by another machine
                autoreload.trigger_reload(str(file))


def _unblock() -> None:
    with contextlib.suppress(ValueError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
