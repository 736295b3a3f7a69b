"""The process that owns the server: starts it, restarts it when it was killed, stops it with its last user.

It has no parent and no terminal, so it outlives the process that started it. How a user ends does not matter, because
users hold locks, which the kernel releases.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from example_project.development.embedded_postgres.account import Account
from example_project.development.embedded_postgres.binaries import Binaries
from example_project.development.embedded_postgres.cluster import Cluster
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError
from example_project.development.embedded_postgres.folder import Folder, Server
from example_project.development.embedded_postgres.lock import Lock
from example_project.development.embedded_postgres.postmaster import Postmaster, serving_alone

READY = "ready"
LOOK_SECONDS = 0.1
LINGER_SECONDS = 1.0  # a command line of several short programs needs one server, not several
RESTARTS, RESTARTS_SECONDS = 5, 300.0  # a restart takes a busy machine half a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order for the supervisor, as text on its command line."""

    folder: str
    binaries: str
    version: str
    settings: Mapping[str, str]
    keep: bool

    @classmethod
    def read(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def result(self) -> str:
        """Description of the ordered server. Environments with the same version in different folders share it."""
        settings = " ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        return f"{self.version}, {'keeping' if self.keep else 'throwing away'} its data, with {settings}"


@dataclass(slots=True)
class Supervisor:
    order: Order
    stopping: bool = False
    unused_since: float | None = None
    restarted: deque[float] = field(default_factory=lambda: deque(maxlen=RESTARTS))

    def run(self, answer: int) -> None:
        """Run the whole life. `answer` is a pipe: the starting process waits there for READY, or for an error."""
        with Lock.exclusive(self.folder.supervised) as alone:
            try:
                self.listen_to_signals()
                cluster = self.provide_cluster()
                postmaster = self.serve(cluster)
            except Exception as error:  # noqa: BLE001 - the waiting process needs every error
                return reply(answer, str(error) if isinstance(error, EmbeddedPostgresError) else repr(error))
            reply(answer, READY)
            return self.keep_serving(cluster, postmaster, alone)

    @property
    def folder(self) -> Folder:
        return Folder(Path(self.order.folder))

    def listen_to_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.stop)

    def stop(self, *_: object) -> None:
        self.stopping = True

    def provide_cluster(self) -> Cluster:
        account = Account.for_server()
        binaries = Binaries(Path(self.order.binaries)).reachable_by(account, self.folder.path.parent)
        cluster = Cluster.of(self.folder.servers_own, binaries, account)
        with serving_alone(self.folder, cluster.data):
            if not self.order.keep:
                cluster.remove()  # data that a killed supervisor has left
            cluster.initialise_once()
        return cluster

    def serve(self, cluster: Cluster, port: int | None = None) -> Postmaster:
        postmaster = Postmaster.started(cluster, self.folder, self.order.settings, port)
        self.folder.announce(
            Server(
                url=cluster.url(postmaster.port),
                port=postmaster.port,
                postmaster=postmaster.process.pid,
                supervisor=os.getpid(),
                made_with=self.order.result,
            )
        )
        return postmaster

    def keep_serving(self, cluster: Cluster, postmaster: Postmaster, alone: Lock) -> None:
        # If this lock's file is gone, the folder may already be another supervisor's: then leave its files alone.
        while not (self.stopping or alone.vanished or self.unused()):
            if not postmaster.alive:
                try:
                    postmaster = self.serve_again(cluster, postmaster.port)
                except EmbeddedPostgresError as error:
                    print(error, file=sys.stderr, flush=True)  # into the log
                    break
            time.sleep(LOOK_SECONDS)
        if not alone.vanished:
            self.folder.withdraw()
        postmaster.stop()
        if not self.order.keep and not alone.vanished:
            cluster.remove()

    def serve_again(self, cluster: Cluster, port: int) -> Postmaster:
        """Restart a killed server on the same port, so that its users only have to connect again."""
        if len(self.restarted) == RESTARTS and time.monotonic() - self.restarted[0] < RESTARTS_SECONDS:
            raise EmbeddedPostgresError(f"The server ended {RESTARTS} times in {RESTARTS_SECONDS:.0f} s: giving up.")
        self.restarted.append(time.monotonic())
        return self.serve(cluster, port)

    def unused(self) -> bool:
        """Whether no process has held a lease for a while. If true, new users wait until this process has ended."""
        lease = Lock.exclusive_now(self.folder.lease)
        if lease is None:
            self.unused_since = None
            return False
        self.unused_since = self.unused_since or time.monotonic()
        if time.monotonic() - self.unused_since >= LINGER_SECONDS:
            return True  # and this process keeps the lease
        lease.release()
        return False


def reply(answer: int, text: str) -> None:
    with open(answer, "w") as pipe, contextlib.suppress(BrokenPipeError):  # the reader may have been killed meanwhile
        pipe.write(text)


def main(order: str, answer: str) -> None:
    """Entry point of the supervisor's process, see server.launch."""
    if os.fork():  # the child has no parent, so no process has to wait for it
        os._exit(0)
    os.umask(0o022)  # the server's account must be able to enter the folders made here; its own stay private
    os.chdir("/")
    Supervisor(Order.read(order)).run(int(answer))
