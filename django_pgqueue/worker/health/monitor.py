"""The supervisor's part of the monitoring: the board, the sockets, and the process that answers."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
import traceback
from typing import TYPE_CHECKING

from django_pgqueue.consumer.forks import flush_streams
from django_pgqueue.worker.health.reporter import Reporter
from django_pgqueue.worker.health.server import Sites, serve
from django_pgqueue.worker.health.shared_state import SharedState
from django_pgqueue.worker.settings import RECYCLED_EXIT_CODE as RECYCLED

if TYPE_CHECKING:
    from django_pgqueue.worker.health.server import Exposed
    from django_pgqueue.worker.settings import WorkerSettings

logger = logging.getLogger("django_pgqueue.worker")

RESTART_SECONDS = 1.0
PATHS = {"metrics": "/metrics /healthz /readyz", "health": "/healthz /readyz"}
"""What each of the sockets serves."""


class PortTaken(Exception):
    """Nothing can be served at the address."""


class Monitor:
    def __init__(self, settings: WorkerSettings, exposed: Exposed | None = None) -> None:
        self.settings = settings
        self.exposed = exposed
        self.board = SharedState(settings.processes)
        self.sockets = {
            name: open_socket(settings.metrics_host, port)
            for name, port in (("metrics", settings.metrics_port), ("health", settings.health_port))
            if port is not None
        }
        for name, opened in self.sockets.items():
            host, port = opened.getsockname()[:2]
            where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            logger.info("serving http://%s %s", where, PATHS[name])
        self.pid: int | None = None
        self.start_at = 0.0
        self.crashed = self.recycled = 0

    def turned(self, *, stopping: bool) -> None:
        """Called in each round of the supervisor's loop."""
        self.board.supervise(
            turned=time.monotonic(), pid=os.getpid(), stopping=stopping, crashed=self.crashed, recycled=self.recycled
        )
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG)[0]:
            logger.error("crashed pid=%s which serves metrics and health: the worker starts it again", self.pid)
            self.pid, self.start_at = None, time.monotonic() + RESTART_SECONDS
        if self.pid is None and time.monotonic() >= self.start_at:
            self._fork()

    def _fork(self) -> None:
        flush_streams()
        supervisor = os.getpid()
        try:
            self.pid = os.fork()
        except OSError as error:
            logger.error("the process that serves metrics and health cannot be started: %s", error)  # noqa: TRY400
            self.start_at = time.monotonic() + RESTART_SECONDS
            return
        if self.pid == 0:
            try:
                os._exit(serve(self.sockets, Sites(self.board, self.settings, self.exposed), supervisor=supervisor))
            except BaseException:  # noqa: BLE001 -- never back into the supervisor's code
                traceback.print_exc()
            finally:
                os._exit(70)

    def free_seat(self) -> int:
        """Returns the number of a free place.  A retiring process keeps its place, beside that of the next one."""
        return next(number for number, place in enumerate(self.board.places) if not place.report.pid)

    def retires(self, number: int) -> None:
        self.board.places[number].retire()

    def began(self, number: int, pid: int) -> None:
        self.board.places[number].begin(pid=pid, now=time.monotonic())

    def ended(self, number: int | None, code: int) -> None:
        """``number``: None for a process of the quarantine, which has no place here."""
        if number is not None:
            self.board.places[number].clear()
        self.crashed += code not in (0, RECYCLED)
        self.recycled += code == RECYCLED

    def reporter(self, number: int) -> Reporter:
        """Called in a process that was just forked.  Closes the sockets, which are not its own."""
        for opened in self.sockets.values():
            opened.close()
        return Reporter(self.board.places[number])

    def close(self) -> None:
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = None
        for opened in self.sockets.values():
            opened.close()


def open_socket(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        message = f"The worker cannot serve at {host} port {port}: {error.strerror or error}."
        raise PortTaken(message) from error
