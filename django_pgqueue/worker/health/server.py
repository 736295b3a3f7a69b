"""The process that serves metrics and health: it reads the board, and has nothing to do with the queue."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol

from django_pgqueue.worker.health.status import Health

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.worker.health.shared_state import SharedState
    from django_pgqueue.worker.settings import WorkerSettings

    Answer = tuple[int, str, bytes]

    class Exposed(Protocol):
        """Returns what is served at /metrics: the content type and the text."""

        def __call__(
            self, board: SharedState, health: Health, settings: WorkerSettings, *, accept: str
        ) -> tuple[str, bytes]: ...


logger = logging.getLogger("django_pgqueue.worker")

SLOW_SECONDS = 5.0
"""A client that has not sent its request, and taken the answer, within this time is cut off."""
LOOK_FOR_PARENT_SECONDS = 1.0
NOT_FOUND = (HTTPStatus.NOT_FOUND, "text/plain", b"Here are /healthz, /readyz and, if it was asked for, /metrics.\n")


@dataclass(frozen=True, slots=True)
class Sites:
    """The paths, and what each of them serves."""

    board: SharedState
    settings: WorkerSettings
    exposed: Exposed | None = None

    def of(self, path: str, accept: str, *, metrics: bool) -> Answer | None:
        health = Health.of(self.board, lock_seconds=self.settings.lock_seconds, now=time.monotonic())
        match path:
            case "/healthz":
                return as_json(health.body, well=health.alive)
            case "/readyz":
                return as_json(health.body, well=health.ready)
            case "/metrics" if metrics and self.exposed is not None:
                content_type, text = self.exposed(self.board, health, self.settings, accept=accept)
                return HTTPStatus.OK, content_type, text
            case _:
                return None


def as_json(body: dict[str, Any], *, well: bool) -> Answer:
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return status, "application/json", (json.dumps(body) + "\n").encode()


def handler(sites: Sites, *, metrics: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "pgqueue"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            answer = sites.of(path, self.headers.get("Accept", ""), metrics=metrics)
            status, content_type, body = answer or NOT_FOUND
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 -- http.server's name

        def log_message(self, *_: Any) -> None:
            """Logs nothing: a probe comes every few seconds."""

    return Handler


class Server(ThreadingHTTPServer):
    """Serves on a socket of the supervisor, which stays open when this process has to be replaced."""

    daemon_threads = True

    def __init__(self, opened: socket.socket, handles: Callable[..., BaseHTTPRequestHandler]) -> None:
        super().__init__(opened.getsockname()[:2], handles, bind_and_activate=False)
        self.socket.close()
        self.socket = opened
        self._until: dict[Any, float] = {}
        """When each connection is cut off."""

    def process_request(self, request: Any, client_address: Any) -> None:
        self._until[request] = time.monotonic() + SLOW_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._until.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called twice a second."""
        for request, until in self._until.copy().items():
            if until < time.monotonic():
                with suppress(OSError):  # it has just ended
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Logs little: a client that went away is no news."""
        logger.debug("answering %s failed", client_address, exc_info=True)  # noqa: LOG014 -- called in one


def serve(sockets: dict[str, socket.socket], sites: Sites, *, supervisor: int) -> int:
    """Answers until the supervisor ends it, or is gone."""
    signal.set_wakeup_fd(-1)
    # These signals reach the whole process group; this process stays until the last worker has left.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    for name, opened in sockets.items():
        server = Server(opened, handler(sites, metrics=name == "metrics"))
        threading.Thread(target=server.serve_forever, name=name, daemon=True).start()
    while os.getppid() == supervisor:
        time.sleep(LOOK_FOR_PARENT_SECONDS)
    return 0
