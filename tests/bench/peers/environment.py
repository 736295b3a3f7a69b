"""An environment for each peer, made on demand, and the peer's program in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.peers.catalogue import Entry

ROOT = Path(__file__).resolve().parents[3]
INSTALL_SECONDS, CALL_SECONDS = 600.0, 600.0
VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


class Unavailable(Exception):
    """A peer cannot be measured here; the text says why."""


@dataclass(slots=True)
class Environment:
    """``PGQUEUE_BENCH_PEERS`` names the folder of all of them; without it they stand beside the project's own."""

    entry: Entry
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        named = os.environ.get("PGQUEUE_BENCH_PEERS")
        return (Path(named) if named else ROOT / ".venv-peers") / self.entry.module

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python") if self.entry.packages else sys.executable

    def prepare(self) -> None:
        if not self.entry.packages or self._installed():
            return
        if sys.version_info[:2] < self.entry.python:
            message = "needs Python {}.{}, and this is {}.{}.".format(*self.entry.python, *sys.version_info[:2])
            raise Unavailable(message)
        shutil.rmtree(self.folder, ignore_errors=True)
        uv = shutil.which("uv")
        self._install(
            [uv, "venv", "-q", "--python", sys.executable, str(self.folder)]
            if uv
            else [sys.executable, "-m", "venv", str(self.folder)]
        )
        self._install(
            [uv, "pip", "install", "-q", "--python", self.python, *self.entry.packages]
            if uv
            else [self.python, "-m", "pip", "install", "-q", *self.entry.packages]
        )

    def version(self) -> str:
        return (
            self._run([self.python, "-c", VERSION, self.entry.distribution]).strip() if self.entry.packages else "here"
        )

    def call(self, command: str, *arguments: Any) -> Any:
        """What the adapter answers."""
        return json.loads(self._run(self.command(command, *arguments)).splitlines()[-1])

    def command(self, command: str, *arguments: Any) -> list[str]:
        words = [json.dumps(argument) for argument in arguments]
        return [self.python, "-m", "tests.bench.peers.adapter", self.entry.module, command, *words]

    @property
    def process_environment(self) -> dict[str, str]:
        """Ours knows of our settings; others must not see them."""
        ours = {"PYTHONHOME", "VIRTUAL_ENV", *({"DJANGO_SETTINGS_MODULE"} if self.entry.packages else {})}
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        return kept | {"PYTHONPATH": str(ROOT)} | self.variables

    def _installed(self) -> bool:
        try:
            return bool(self.version())
        except (Unavailable, OSError):
            return False

    def _install(self, words: list[str]) -> None:
        self._run(words, seconds=INSTALL_SECONDS)

    def _run(self, words: list[str], seconds: float = CALL_SECONDS) -> str:
        try:
            done = subprocess.run(
                words, env=self.process_environment, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            message = f"{words[-2:]} took longer than {seconds:g} seconds"
            raise Unavailable(message) from error
        if done.returncode:
            message = last_line(done.stderr) or f"{words[0]} ended with {done.returncode}"
            raise Unavailable(message)
        return done.stdout


def last_line(text: str) -> str:
    """Of a traceback, what went wrong.

    >>> last_line("Traceback:\\n  ...\\nValueError: no\\n\\n")
    'ValueError: no'
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""
