"""The storm's own PostgreSQL, in a folder that goes with it: stopped in every way, out of disk, failed over."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from example_project.development.embedded_postgres.account import Account
from example_project.development.embedded_postgres.binaries import Binaries
from example_project.development.embedded_postgres.cluster import environment
from example_project.development.embedded_postgres.postmaster import accepts_connections, free_port
from tests.support.launcher import launch

if TYPE_CHECKING:
    from pathlib import Path

START_SECONDS = 60.0
MAX_STARTS = 3
"""A server that is alive when a full disk has room again may still die of it in its recovery."""
WAL_MEGABYTES = 640
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "110",
    "shared_buffers": "256MB",
    "max_wal_size": "300MB",
    "checkpoint_timeout": "60s",
    "wal_keep_size": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "deadlock_timeout": "100ms",
    "autovacuum_naptime": "1s",
    # What the server has handed to the operating system outlives the end of its processes, with or without.
    "fsync": "off",
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}
# Ends with the one who started it, also when that is killed.  Not by preexec_fn: this process has many threads.
END_WITH_PARENT = [
    sys.executable,
    "-I",
    "-S",
    "-c",
    """
import ctypes, os, sys
prctl = getattr(ctypes.CDLL(None), "prctl", None)
uid, gid, *command = sys.argv[1:]
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
if prctl:
    prctl(1, 3)
os.execv(command[0], command)
""",
]


@dataclass(slots=True)
class Node:
    """One data directory, and the server on it while it runs."""

    data: Path
    port: int
    programs: Binaries
    account: Account
    log: Path
    wal: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        command = [str(self.programs.program("postgres")), "-D", str(self.data), "-p", str(self.port)]
        command += [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = launch(
                [*END_WITH_PARENT, str(self.account.uid), str(self.account.gid), *command],
                cwd="/",
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start(self) -> None:
        self.launch()
        self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not accepts_connections(self.port):
            if time.monotonic() > deadline or not self.alive:
                message = f"PostgreSQL did not start: {self.log.read_text(errors='replace')[-2000:]}"
                raise RuntimeError(message)
            time.sleep(0.01)

    def end(self, number: signal.Signals) -> None:
        """SIGQUIT is ``-m immediate``, SIGINT ``-m fast``."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Server:
    """The node that is the primary now, and the way to make another one it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.chmod(0o755)
        self.account = Account.for_server()
        self.programs = Binaries.found().reachable_by(self.account, folder)
        self.version = self.programs.version()
        self.password = secrets.token_hex(16)
        self.mounts: list[Path] = []
        self.ports = [free_port(), free_port()]
        self.made = 0
        self.primary = self._node()
        self.previous: Node | None = None

    # Making

    def _node(self) -> Node:
        self.made += 1
        home = self.folder / f"node-{self.made}"
        home.mkdir(mode=0o700)
        self.account.own(home)
        (self.folder / "postgres.log").touch()
        port = self.ports[(self.made - 1) % 2]
        wal = self._small_disk(self.folder / f"wal-{self.made}")
        return Node(home / "data", port, self.programs, self.account, self.folder / "postgres.log", wal)

    def _small_disk(self, path: Path) -> Path | None:
        """A disk for the WAL that can be filled; None where we may not mount one."""
        if os.geteuid() != 0 or not sys.platform.startswith("linux") or shutil.which("mount") is None:
            return None
        path.mkdir(mode=0o755)
        options = f"size={WAL_MEGABYTES}m,mode=0700,uid={self.account.uid},gid={self.account.gid}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return None
        self.mounts.append(path)
        return path

    def make(self) -> None:
        password = self.folder / "password"
        password.write_text(self.password)
        password.chmod(0o600)
        self.account.own(password)
        waldir = [f"--waldir={self.primary.wal / 'wal'}"] if self.primary.wal else []
        self._run(
            "initdb", "-D", str(self.primary.data), "-U", "pgqueue", f"--pwfile={password}", "--encoding=UTF8",
            "--locale=C", "--auth=scram-sha-256", "--no-sync", "--wal-segsize=4", *waldir,
        )  # fmt: skip
        with (self.primary.data / "pg_hba.conf").open("a") as file:
            file.write("host replication all 127.0.0.1/32 scram-sha-256\n")
        self.primary.start()
        with self.connect("postgres") as admin:
            admin.execute(f"create role storm login password '{self.password}'".encode())
            # As storm, for whom it works; but what is done to storm's sessions and settings is not done to it.
            admin.execute(f"create role bystander login password '{self.password}' in role storm".encode())
            admin.execute("alter role bystander set role = 'storm'")
            admin.execute("create database storm owner storm")
            admin.execute("create database pgqueue")
        with self.connect() as admin:
            admin.execute("grant pg_monitor to storm")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs.program(program)), *arguments]
        variables = environment() | {"PGPASSWORD": self.password}
        done = subprocess.run(
            command, cwd="/", env=variables, capture_output=True, text=True, check=False, **self.account.run_as
        )
        if done.returncode:
            message = f"{program} failed: {done.stdout[-500:]}{done.stderr[-500:]}"
            raise RuntimeError(message)

    # Using

    def connect(self, database: str = "storm", *, node: Node | None = None, **options: Any) -> psycopg.Connection[Any]:
        """As the superuser, straight to the primary."""
        return psycopg.connect(
            host="127.0.0.1", port=(node or self.primary).port, user="pgqueue", password=self.password, dbname=database,
            autocommit=True, connect_timeout=5, **options,
        )  # fmt: skip

    def when_there(self, seconds: float = START_SECONDS) -> psycopg.Connection[Any]:
        """A connection, as soon as there is one to be had."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return self.connect()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    # Ending

    def crash(self) -> None:
        self.primary.end(signal.SIGQUIT)

    def heal(self) -> None:
        """Start it again, whatever a fault has left behind."""
        if self.primary.wal is not None:
            (self.primary.wal / "filler").unlink(missing_ok=True)
        for left in reversed(range(MAX_STARTS)):
            if not self.primary.alive:
                self.primary.launch()
            try:
                self.primary.wait()
            except RuntimeError:
                if self.primary.alive or not left:
                    raise
            else:
                return

    # Failing over

    def standby(self) -> Node:
        """A copy of the primary that follows it, and that each commit waits for."""
        node = self._node()
        waldir = [f"--waldir={node.wal / 'wal'}"] if node.wal else []
        self._run(
            "pg_basebackup", "-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "pgqueue", "-D", str(node.data),
            "-X", "stream", "-R", "-c", "fast", "--no-sync", *waldir,
        )  # fmt: skip
        with (node.data / "postgresql.auto.conf").open("a") as file:
            file.write("synchronous_standby_names = ''\n")
        node.start()
        with self.connect() as admin:
            admin.execute("alter system set synchronous_standby_names = '*'")
            admin.execute("select pg_reload_conf()")
            deadline = time.monotonic() + START_SECONDS
            while not admin.execute("select 1 from pg_stat_replication where sync_state = 'sync'").fetchone():
                if time.monotonic() > deadline:
                    message = "the standby does not follow"
                    raise RuntimeError(message)
                time.sleep(0.05)
        return node

    def fail_over(self, standby: Node) -> None:
        self.crash()
        with psycopg.connect(
            host="127.0.0.1", port=standby.port, user="pgqueue", password=self.password, dbname="storm", autocommit=True
        ) as admin:
            admin.execute("select pg_promote(true, 60)")
        self._forget(self.primary)
        self.primary = standby

    def _forget(self, node: Node) -> None:
        if node.wal is not None:
            self._unmount(node.wal)
        shutil.rmtree(node.data.parent, ignore_errors=True)

    def _unmount(self, path: Path) -> None:
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)
        self.mounts.remove(path)

    def remove(self) -> None:
        if self.primary.alive:
            self.crash()
        for path in list(self.mounts):
            self._unmount(path)
