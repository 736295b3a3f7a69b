"""The standard output of a command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand

if TYPE_CHECKING:
    from typing import TextIO


class Output:
    """Takes any text, also when its reader has left, as ``head`` does: the command goes on to its end and exit code."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        shown = text.encode(encoding, "backslashreplace").decode(encoding)
        try:
            self._out.write(shown)
            self._out.flush()
        except BrokenPipeError:  # Python's own flush at exit must not fail either
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


def standard_output() -> TextIO:
    """Returns the standard output.  A program that was started with it closed has none, and loses what it prints."""
    return sys.stdout or Path(os.devnull).open("w", encoding="utf-8")


class PrintingCommand(BaseCommand):
    """A command whose output people pipe into others."""

    def __init__(self, stdout: Any = None, *args: Any, **kwargs: Any) -> None:
        out: Any = stdout or Output(standard_output())
        super().__init__(out, *args, **kwargs)
