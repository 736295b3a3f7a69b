"""A PgBouncer in transaction mode in front of a server of the tests: stopped, killed, started again, led elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from example_project.development.embedded_postgres.cluster import environment
from example_project.development.embedded_postgres.postmaster import free_port
from tests.support.launcher import launch
from tests.support.server import END_WITH_PARENT

if TYPE_CHECKING:
    from pathlib import Path

    from example_project.development.embedded_postgres.account import Account

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MISSING = "PgBouncer is not installed (Debian: pgbouncer)"
START_SECONDS = 30.0
SESSIONS = 8
INI = """
[databases]
storm = host=127.0.0.1 port={upstream} dbname=storm user=storm password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
server_login_retry = 1
ignore_startup_parameters = extra_float_digits,options
"""


class Pooler:
    """Its clients share a few server sessions, transaction by transaction."""

    def __init__(self, folder: Path, account: Account, *, password: str, upstream: int) -> None:
        self.folder, self.account = folder / "pooler", account
        self.password, self.upstream = password, upstream
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(mode=0o700)
        account.own(self.folder)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        assert PROGRAM is not None, MISSING
        ini = self._write()
        with (self.folder.parent / "pooler.log").open("ab") as log:
            self.process = launch(
                [*END_WITH_PARENT, str(self.account.uid), str(self.account.gid), PROGRAM, "-q", str(ini)],
                cwd="/",
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._listens():
            if time.monotonic() > deadline or not self.alive:
                said = (self.folder.parent / "pooler.log").read_text(errors="replace")[-2000:]
                message = f"PgBouncer did not start: {said}"
                raise RuntimeError(message)
            time.sleep(0.01)

    def _write(self) -> Path:
        ini = self.folder / "pgbouncer.ini"
        values = {"upstream": self.upstream, "password": self.password, "port": self.port, "sessions": SESSIONS}
        ini.write_text(INI.format(**values))
        ini.chmod(0o600)
        self.account.own(ini)
        return ini

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
        except OSError:
            return False
        return True

    def lead_to(self, upstream: int) -> None:
        """As its operator does after a failover: the file, and SIGHUP."""
        if upstream != self.upstream:
            self.upstream = upstream
            self._write()
            if self.alive and self.process is not None:
                self.process.send_signal(signal.SIGHUP)

    def end(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)

    def heal(self, upstream: int) -> None:
        self.lead_to(upstream)
        if not self.alive:
            self.start()
