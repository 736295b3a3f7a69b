"""The worker processes of a storm: a few kinds, each kept alive whatever is done to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import available_timezones

from tests.proofs.reliability.durable import QUEUE as DURABLE
from tests.proofs.reliability.generator import BYSTANDERS, CROWD, CROWD_SIZE
from tests.proofs.reliability.old import OldVersion
from tests.proofs.reliability.tasks import DEPLOY, DEPLOYS, NAME
from tests.proofs.reliability.traps import TRAPS, note_killed
from tests.support.launcher import launch
from tests.support.processes import group
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import psycopg

ROOT = Path(__file__).resolve().parents[3]
HAS_POOL = find_spec("psycopg_pool") is not None
LOCK_SECONDS, GRACE_SECONDS = 3.0, 3.0
START_SECONDS = 120.0
FAKETIME = "libfaketime.so.1"
HOST_ZONE = "Europe/Berlin" if "Europe/Berlin" in available_timezones() else ""
"""Of the host whose clock can be moved."""


@dataclass(slots=True)
class Worker:
    """A place for a ``qworker``: when that has ended, another one is started in it."""

    name: str
    arguments: tuple[str, ...]
    variables: dict[str, str]
    log: Path
    code: Path = ROOT
    process: subprocess.Popen[bytes] | None = None
    is_target: bool = True
    """Whether faults are done to it."""
    wanted: bool = True
    starts: int = 0
    guard: threading.RLock = field(default_factory=threading.RLock)

    def start(self) -> None:
        with self.guard, self.log.open("ab") as log:
            self.starts += 1
            self.process = launch(
                [sys.executable, "-m", "tests.proofs.reliability.manage", "qworker", "-v", "0", *self.arguments],
                cwd=self.code,
                env=self.variables | {"PYTHONPATH": str(self.code), NAME: self.name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    @property
    def processes(self) -> list[int]:
        """The worker processes, without the supervisor."""
        return [pid for pid in group(self.pid) if pid != self.pid] if self.process is not None else []

    def keep(self) -> None:
        """Starts it again if it has gone."""
        with self.guard:
            if self.wanted and not self.alive:
                self.kill()  # what the supervisor left behind
                self.start()

    def send(self, number: signal.Signals, pid: int | None = None) -> None:
        if number == signal.SIGKILL:
            note_killed(pid or self.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid or self.pid, number)

    def change(self, deploy: str, *, hard: bool = False) -> None:
        """Leaves, and comes back with another version of the application."""
        with self.guard:
            self.variables = self.variables | {DEPLOY: deploy}
            if hard:
                self.kill()
            elif self.alive:
                self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Takes all its processes away, as if the power had failed."""
        process = self.process  # another may stand in its place before it has gone
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self, *, signals: int = 1) -> dict[str, Any]:
        """Asks it to stop, and says how long that took."""
        with self.guard:
            if not self.alive or self.process is None:
                return {}
            began = time.monotonic()
            for number in range(signals):
                time.sleep(0.1 if number else 0)
                self.send(signal.SIGTERM)
            try:
                code = self.process.wait(GRACE_SECONDS + 30)
            except subprocess.TimeoutExpired:
                code = None
            seconds = time.monotonic() - began
            self.kill()
            return {"worker": self.name, "seconds": round(seconds, 2), "code": code, "signals": signals}


class Workers:
    """All of them, and a thread that keeps them alive."""

    def __init__(self, folder: Path, variables: dict[str, str], *, proxy: int, pooler: int | None) -> None:
        self.folder = folder
        (folder / "diary").mkdir()
        (folder / "traps").mkdir()
        (folder / "zones").mkdir()
        self.zones = folder / "zones"
        self.clock = folder / "faketime"
        self.clock.write_text("+0\n")
        common = ("--lock-seconds", str(LOCK_SECONDS), "--grace-seconds", str(GRACE_SECONDS))
        main = ("--exclude-queues", f"probe,{BYSTANDERS},{CROWD}", *common)
        without_durable = ("--exclude-queues", f"probe,{BYSTANDERS},{CROWD},{DURABLE}", *common)
        variables = variables | {"STORM_WORKER": "1", "STORM_FOLDER": str(folder)}
        clock = faketime(self.clock)
        self.has_faketime = bool(clock)
        behind = {"STORM_PORTS": str(proxy), "STORM_SESSIONS": "any"}
        moved = {"STORM_ISOLATION": "SERIALIZABLE", "STORM_TIME_ZONE": HOST_ZONE or "UTC"}
        aside = {TRAPS: "no traps"}
        self.old = OldVersion(folder / "old")
        log = folder / "workers.log"
        self.all = [
            Worker("two processes", ("--processes", "2", "--threads", "3", *main), variables, log),
            Worker("strange clock", ("--threads", "3", *main), variables | clock | moved, log),
            Worker("behind the proxy", ("--threads", "3", *main), variables | behind, log),
            Worker(
                "old version",
                ("--threads", "3", *without_durable),
                variables | {"STORM_ISOLATION": "REPEATABLE_READ"},
                log,
                code=self.old.code,
            ),
            Worker("probe", ("--threads", "1", "--queues", "probe", *common), variables | aside, log, is_target=False),
            Worker(
                BYSTANDERS,
                ("--threads", "2", "--queues", BYSTANDERS, *common),
                variables | aside | {"STORM_USER": "bystander"},
                log,
                is_target=False,
            ),
            Worker(
                CROWD,
                ("--threads", str(CROWD_SIZE + 4), "--queues", CROWD, *common),
                variables | aside,
                log,
                is_target=False,
            ),
        ]
        if pooler is not None:
            behind = {"STORM_PORTS": str(pooler), "STORM_SESSIONS": "any", "STORM_POOLED": "1"}
            self.all.append(Worker("behind PgBouncer", ("--threads", "3", *main), variables | behind, log))
        if HAS_POOL:
            self.all.append(Worker("psycopg's pool", ("--threads", "3", *main), variables | {"STORM_POOL": "1"}, log))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="workers", daemon=True)

    @property
    def main(self) -> list[Worker]:
        """Those that faults are done to."""
        return [worker for worker in self.all if worker.is_target]

    @property
    def deployed(self) -> list[Worker]:
        """Those that run today's code: the old one knows nothing of versions, and has all tasks."""
        return [worker for worker in self.main if worker.code == ROOT]

    def named(self, name: str) -> Worker:
        return next(worker for worker in self.all if worker.name == name)

    def start(self) -> None:
        for worker in self.deployed:
            worker.variables = worker.variables | {DEPLOY: "0"}
        for worker in self.all:
            worker.start()
        self._thread.start()

    def wait_until_started(self, admin: psycopg.Connection[Any]) -> None:
        """Waits until each of them has registered: a worker that never starts would prove nothing."""
        for worker in self.all:

            def is_seen(worker: Worker = worker) -> bool:
                seen = admin.execute("select pid from pgqueue_worker").fetchall()
                return bool({pid for (pid,) in seen} & {worker.pid, *worker.processes})

            wait_until(is_seen, f"{worker.name} has started: see {worker.log}", START_SECONDS)

    def _keep(self) -> None:
        while not self._over.wait(0.1):
            for worker in self.all:
                worker.keep()

    def heal(self) -> None:
        for worker in self.all:
            for pid in group(worker.pid):
                worker.send(signal.SIGCONT, pid)
        for worker in self.deployed:  # the last deploy reaches everybody
            worker.change(str(DEPLOYS - 1))

    def stop(self) -> list[dict[str, Any]]:
        self._over.set()
        self._thread.join()
        return [facts for worker in self.all if (facts := worker.stop())]

    def kill(self) -> None:
        self._over.set()
        for worker in self.all:
            worker.kill()


def faketime(clock: Path) -> dict[str, str]:
    """Variables for a process whose wall clock, and only that, is what the file says; none without libfaketime."""
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    found = [*(folder / FAKETIME for folder in folders), *Path("/usr/lib").glob(f"*/faketime/{FAKETIME}")]
    for library in found:
        if library.exists():
            return {
                "LD_PRELOAD": str(library),
                "FAKETIME_TIMESTAMP_FILE": str(clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
    return {}
