"""Progress of a step: nothing for programs, lines and a moving status for people."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator


class Progress:
    """Progress of which nobody is told."""

    def step(self, words: str) -> None:
        """Shows what begins now."""

    def say(self, words: str) -> None:
        """Prints a line that stays."""


class Lines(Progress):
    """Progress for logs and for terminals without rich."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def step(self, words: str) -> None:
        self.say(f"{words} …")

    def say(self, words: str) -> None:
        self._stream.write(f"{words}\n")
        self._stream.flush()


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator[Progress]:
    """Shows a moving line with the elapsed time if standard error is a terminal and rich is installed, else lines."""
    stream = stream or sys.stderr
    try:
        from rich.console import Console  # noqa: PLC0415 -- an extra
    except ImportError:
        yield Lines(stream)
        return
    if not stream.isatty():
        yield Lines(stream)
        return
    console = Console(file=stream)
    with console.status("starting") as status:
        begun = time.monotonic()

        class Bar(Progress):
            def step(self, words: str) -> None:
                status.update(f"{words} … [dim]({time.monotonic() - begun:.0f} s so far)[/dim]")

            def say(self, words: str) -> None:
                console.print(words, markup=False, highlight=False)

        yield Bar()
