"""A real terminal, and a command that runs in it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

from tests.support.processes import ROOT
from tests.support.waiting import SECONDS

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence

ALTERNATE, BACK = "\x1b[?1049h", "\x1b[?1049l"
"""To the other screen, where programs draw that are left again, and back to where the shell was."""


class Window:
    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        columns: int = 100,
        lines: int = 30,
        starts: Sequence[str] = (),
    ) -> None:
        """``starts`` is a program that starts the command, as nohup does."""
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [*starts, sys.executable, "-m", "tests.support.site.manage", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 -- it takes no lock
        )
        os.close(theirs)
        self.seen = ""

    def shows(self, text: str) -> None:
        """Waits until it has shown it."""
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.seen!r}"
            if not self._read():
                break
        assert text in self.seen, self.seen

    def closes(self) -> None:
        """The kernel sends SIGHUP to the command's group."""
        os.close(self.ours)

    def ends(self, by: signal.Signals | None = None) -> int:
        """Its exit code; with all that it has shown."""
        if by is not None:
            os.kill(self.process.pid, by)
        deadline = time.monotonic() + SECONDS
        while self._read():
            assert time.monotonic() < deadline, f"it does not end: {self.seen!r}"
        os.close(self.ours)
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        if not select.select([self.ours], [], [], 0.1)[0]:
            return True
        try:
            read = os.read(self.ours, 65536)
        except OSError:  # Linux: nobody has the other end any more
            return False
        self.seen += read.decode(errors="replace")
        return bool(read)
