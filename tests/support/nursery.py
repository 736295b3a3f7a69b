"""Starts a program of Django in half of the time: a process that has imported Django and psycopg already forks for it.

It has imported nothing of this package and has no settings, so that the program finds all that it would find in a new
interpreter.  To Python itself nothing can be said any more: who wants that starts an interpreter.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = (
    "asyncio", "concurrent.futures.thread", "django.core.management", "django.core.mail", "django.core.paginator",
    "django.db.backends.postgresql.base", "django.db.models", "django.urls", "django.utils.autoreload", "http.server",
    "logging.handlers", "psycopg", "zoneinfo",
)  # fmt: skip


class Nursery:
    """The process that forks, as long as this one lives."""

    def __init__(self) -> None:
        self._variables = of_python(os.environ)
        self._one_asks = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def takes(self, environment: Mapping[str, str]) -> bool:
        """Whether a program with this environment would be told the same about Python."""
        return of_python(environment) == self._variables

    def start(self, module: str, *arguments: str, environment: Mapping[str, str], output: Path) -> Forked:
        """Starts the module in a process group of its own, which writes to the file."""
        asked = {"module": module, "arguments": arguments, "environment": {**environment}, "output": str(output)}
        return Forked(self, self.ask(asked))

    def ask(self, what: Any) -> Any:
        with self._one_asks:
            print(json.dumps(what), file=self._process.stdin, flush=True)
            assert self._process.stdout is not None
            return json.loads(self._process.stdout.readline())


def of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


class Forked:
    """As much of ``subprocess.Popen`` as is used of a worker."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.ask(self.pid)
        return self.returncode

    def wait(self) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.01)
        return code


def main(asked: TextIO) -> None:
    """In the other process: answers a line that asks for a program by its id, and an id by the exit code."""
    for name in IMPORTED:
        import_module(name)
    while line := asked.readline():
        what = json.loads(line)
        answer = exit_code(what) if isinstance(what, int) else forked(**what)
        if answer == 0 and not isinstance(what, int):
            return  # the program has ended
        print(json.dumps(answer), flush=True)


def exit_code(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def forked(module: str, arguments: list[str], environment: dict[str, str], output: str) -> int:
    """Returns the id of the process.  In that process, returns 0 when the program has come to its end."""
    is_ready, ready = os.pipe()
    if pid := os.fork():
        os.close(ready)
        os.read(is_ready, 1)  # it has the process group under whose id signals are sent
        os.close(is_ready)
        return pid
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number, (path, flags) in enumerate([(os.devnull, os.O_RDONLY), *[(output, os.O_WRONLY | os.O_APPEND)] * 2]):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 -- until the end of the process
    os.closerange(3, 64)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    main(sys.stdin)
