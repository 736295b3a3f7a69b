"""Real workers: processes that ``manage.py qworker`` has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.nursery import Nursery
from tests.support.waiting import SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.nursery import Forked

ROOT = Path(__file__).resolve().parents[2]
MANAGE = "tests.support.site.manage"


@cache
def nursery() -> Nursery:
    return Nursery()


class QWorker:
    """A worker in a process group of its own, as a shell or a service manager would start it."""

    def __init__(self, arguments: tuple[str, ...], *, environment: Mapping[str, str], output: Path) -> None:
        self._output = output
        output.touch()
        if nursery().takes(environment):
            self.process: Forked | subprocess.Popen[bytes] = nursery().start(
                MANAGE, "qworker", *arguments, environment=environment, output=output
            )
            return
        with output.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", MANAGE, "qworker", *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The supervisor's."""
        return self.process.pid

    @property
    def id(self) -> str:
        """The name under which its first process works."""
        return self.output.partition("started worker=")[2].split()[0]

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def alive(self) -> list[int]:
        """The process ids of its group."""
        return group(self.pid)

    @property
    def children(self) -> list[int]:
        return [pid for pid in self.alive if pid != self.pid]

    def says(self, *texts: str, times: int = 1) -> None:
        """Waits until it has said each of them."""

        def said() -> bool:
            output = self.output
            return (
                all(output.count(text) >= times for text in texts)
                or self.process.poll() is not None
                or ("crashed" in output and "crashed" not in texts)
            )

        self._wait(said, f"the worker says {texts}")
        output = self.output
        assert all(output.count(text) >= times for text in texts), (
            f"the worker ended, or crashed, without saying {texts}:\n{output}"
        )

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def send_to(self, pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def send_to_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def ends(self, seconds: float = SECONDS) -> int:
        """Waits for its end and answers the exit code."""
        self._wait(lambda: self.process.poll() is not None, "the worker ends", seconds)
        return self.process.wait()

    def stop(self) -> int:
        self.send(signal.SIGTERM)
        return self.ends()

    def kill(self) -> None:
        """Takes it away, with all its processes, as if the power had failed."""
        self.send_to_group(signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not self.alive, "the processes are gone")

    def _wait(self, condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
        try:
            wait_until(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}, but it said:\n{self.output}") from None


def group(pgid: int) -> list[int]:
    """The living processes of a process group: zombies that nobody has looked at yet are none."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = file.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == pgid and state not in "ZX":
            found.append(int(file.parent.name))
    return sorted(found)
