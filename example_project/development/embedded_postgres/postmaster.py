"""The server's first process: it is started, probed and stopped here. Its pid file is never trusted."""

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from example_project.development.embedded_postgres.cluster import NAME, Cluster, environment
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError
from example_project.development.embedded_postgres.folder import Folder
from example_project.development.embedded_postgres.lock import Lock, is_held

START_SECONDS = 60.0  # crash recovery may take its time
STOP_SECONDS = 20.0
ORPHAN_SECONDS = 2.0
PORTS_TRIED = 5
PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Postmaster:
    process: subprocess.Popen[bytes]
    port: int

    @classmethod
    def started(cls, cluster: Cluster, folder: Folder, settings: Mapping[str, str], port: int | None = None) -> Self:
        """A server that accepts connections; on `port` if that is still free, else on any."""
        for attempt in range(PORTS_TRIED):
            chosen = port if port and attempt == 0 else free_port()
            position = folder.log.stat().st_size
            postmaster = cls(launch(cluster, folder, settings, chosen), chosen)
            if postmaster.came_up():
                return postmaster
            said = folder.log.read_bytes()[position:].decode(errors="replace")
            if "could not bind" not in said:
                raise EmbeddedPostgresError(f"The server did not start; {folder.log} says:\n{said[-2000:]}")
        raise EmbeddedPostgresError(f"No free port found on 127.0.0.1 in {PORTS_TRIED} attempts.")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def came_up(self) -> bool:
        wait_until(lambda: not self.alive or accepts_connections(self.port), START_SECONDS)
        if self.alive and not accepts_connections(self.port):
            self.stop()
        return self.alive

    def stop(self) -> None:
        if not self.alive:
            return
        self.process.send_signal(signal.SIGINT)  # "fast": clients are disconnected, committed data is written
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(STOP_SECONDS)


def launch(cluster: Cluster, folder: Folder, settings: Mapping[str, str], port: int) -> subprocess.Popen[bytes]:
    command = [str(cluster.binaries.program("postgres")), "-D", str(cluster.data), "-p", str(port)]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    # The server inherits the file, so the lock is held exactly as long as any of its processes lives. It is more
    # reliable than the pid in postmaster.pid, which after a crash may be that of another program.
    with serving_alone(folder, cluster.data) as serving:
        (cluster.data / "postmaster.pid").unlink(missing_ok=True)
        return subprocess.Popen(
            command,
            cwd="/",
            env=environment(),
            stdin=subprocess.DEVNULL,
            pass_fds=(serving.fd,),
            preexec_fn=end_with_parent(),  # noqa: PLW1509 - the supervisor has one thread
            **cluster.account.run_as,
        )


def serving_alone(folder: Folder, data: Path) -> Lock:
    """Take the lock that all processes of an earlier server have released; a leftover server is stopped."""
    wait_until(lambda: not is_held(folder.serving), ORPHAN_SECONDS)
    if is_held(folder.serving) and (orphan := running_postmaster(data)):
        os.kill(orphan, signal.SIGQUIT)
    wait_until(lambda: not is_held(folder.serving), STOP_SECONDS)
    lock = Lock.exclusive_now(folder.serving)
    if lock is None:
        raise EmbeddedPostgresError(f"Processes of an earlier server still use {data} and do not stop.")
    return lock


def running_postmaster(data: Path) -> int | None:
    """The process of postmaster.pid, if its command line shows that it serves this data directory."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n")[0])
    except (OSError, ValueError):
        return None
    return pid if f" -D {data} " in command_line(pid) else None


def command_line(pid: int) -> str:
    try:
        if (shown := Path(f"/proc/{pid}/cmdline")).exists():  # Linux, where a small container has no ps
            return shown.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return subprocess.check_output(["ps", "-ww", "-o", "command=", "-p", str(pid)], text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""


def end_with_parent() -> Callable[[], None] | None:
    """On Linux: let the kernel stop the server when its supervisor ends, even by SIGKILL."""
    if not sys.platform.startswith("linux"):
        return None  # the next start finds such an orphan and stops it
    prctl = ctypes.CDLL(None).prctl  # looked up here: the forked child must not load anything
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def accepts_connections(port: int) -> bool:
    """Whether a server there now asks for a password: the test of pg_isready, in five lines."""
    parameters = f"user\0{NAME}\0database\0{NAME}\0\0".encode()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(struct.pack("!ii", len(parameters) + 8, 3 << 16) + parameters)
            return connection.recv(1024).startswith(b"R")  # reads all of it, else the server logs a broken connection
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float, step: float = 0.01) -> bool:
    """Wait, and return whether the condition became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True
