"""Progress of a step: nothing for programs, lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


class Progress:
    """Progress of which nobody is told."""

    def step(self, words: str) -> None:
        """Shows what begins now."""

    def say(self, words: str) -> None:
        """Tells what people should know."""


class Lines(Progress):
    """Progress for terminals and logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def step(self, words: str) -> None:
        self.say(f"{words} …")

    def say(self, words: str) -> None:
        self._stream.write(f"{words}\n")
        self._stream.flush()
