"""Notes of the tests' jobs, and what they wait for: files, so that a job can tell even while its database is away."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "PGQUEUE_TEST_DIARY"
"""The environment variable that tells a worker where its diary is."""
MAX_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Diary:
    folder: Path

    @classmethod
    def of_this_process(cls) -> Diary:
        return cls(Path(os.environ[FOLDER]))

    # What has happened

    def write(self, word: str, **facts: Any) -> None:
        entry = {"word": word, "pid": os.getpid(), "thread": threading.current_thread().name, **facts}
        # One short write to a file that is opened for appending: entries of many threads and processes stay whole.
        with (self.folder / "entries").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def entries(self, word: str | None = None) -> list[dict[str, Any]]:
        file = self.folder / "entries"
        lines = file.read_text().splitlines() if file.exists() else []
        return [entry for entry in map(json.loads, lines) if word in (None, entry["word"])]

    def words(self) -> list[str]:
        return [entry["word"] for entry in self.entries()]

    # What is waited for

    def allow(self, name: str) -> None:
        (self.folder / f"allowed-{name}").touch()

    def is_allowed(self, name: str) -> bool:
        return (self.folder / f"allowed-{name}").exists()

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while not self.is_allowed(name):
            if time.monotonic() > deadline:
                message = f"nobody has allowed {name!r}"
                raise TimeoutError(message)
            time.sleep(0.01)
