"""The lines of succeeded attempts, formatted and written in batches.

A line that goes through ``logging`` costs as much as a short job, and the slots wait for each other and the terminal.
Where qworker itself prints the lines, a slot only leaves the attempt here.  A thread writes them ten times a second,
so that a process that is killed loses the lines of its last tenth of a second; their attempts stand in the history.

A project with handlers of its own, or with JSON, gets a record for each attempt as before.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, TextIO

from django_pgqueue.logs import in_a_line

if TYPE_CHECKING:
    from django_pgqueue.worker.run.outcome import EndedAttempt

WRITE_EVERY_SECONDS = 0.1
MAX_WAITING = 20_000
"""So many lines wait for a terminal that is slower than the jobs.  Then the slots wait too."""
TIME = len("2026-11-24 21:00:00,123")
MAX_TRACEBACK_LINE = 2_000
PLAIN = "%(asctime)s %(levelname)-7s %(message)s"


class LineFormatter(logging.Formatter):
    """Indents tracebacks, whose text the task may have from anywhere, so that none of it looks like a line."""

    def formatException(self, ei: Any) -> str:  # noqa: N802
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"    {in_a_line(line, MAX_TRACEBACK_LINE)}" for line in lines)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes records at once, behind all lines that wait."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        """``formatter`` may colour what PLAIN makes."""
        super().__init__(stream)
        self.setFormatter(formatter)
        self._succeeded = formatter.format(logging.LogRecord("", logging.INFO, "", 0, "succeeded", (), None))[TIME:]
        self._waiting: deque[tuple[float, EndedAttempt]] = deque()
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._second, self._text = 0, ""
        _all.add(self)

    def succeeded(self, end: EndedAttempt) -> None:
        """Called by the slots."""
        self._waiting.append((time.time(), end))
        if not self._woken.is_set():
            self._woken.set()
            if self._thread is None:
                self._start()
        elif len(self._waiting) > MAX_WAITING:
            self.flush()

    def format(self, record: logging.LogRecord) -> str:
        return self._encodable(super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write_waiting()  # logging holds the lock
        except (OSError, ValueError):  # as for the record itself: whoever logs gets no error of the stream
            self.handleError(record)
        super().emit(record)

    def flush(self) -> None:
        self.acquire()
        try:
            self._write_waiting()
            super().flush()
        finally:
            self.release()

    def _start(self) -> None:
        self.acquire()
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._write, name="log lines", daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError:  # there can be no more threads at present: the slot writes
            self._woken.clear()
            self._write_waiting()
        finally:
            self.release()

    def _write(self) -> None:
        while True:
            self._woken.wait()
            time.sleep(WRITE_EVERY_SECONDS)
            self._woken.clear()
            try:
                self.flush()
            except Exception:  # noqa: BLE001 -- nobody reads the stream, it is closed, memory ran out: later lines matter
                self._waiting.clear()

    def _write_waiting(self) -> None:
        lines = []
        while self._waiting:
            lines.append(self._line(*self._waiting.popleft()))
        self.stream.write(self._encodable("".join(lines)))

    def _encodable(self, text: str) -> str:
        """A letter that the encoding of the stream lacks is written as its number, as by sys.stderr."""
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def _line(self, at: float, end: EndedAttempt) -> str:
        second = int(at)
        if second != self._second:
            converter = logging.Formatter.converter if self.formatter is None else self.formatter.converter
            self._second, self._text = second, time.strftime("%Y-%m-%d %H:%M:%S", converter(second))
        message = end.message
        return (
            f"{self._text},{int((at - second) * 1000):03d}{self._succeeded} id={message.id} "
            f"task={in_a_line(message.task)} attempt={message.attempt} ms={end.run_ms:.1f}\n"
        )

    def _forget(self) -> None:
        """Called in a forked process: the lines are those of its parent, and the thread has stayed there."""
        self._waiting.clear()
        self._thread = None
        self._woken = threading.Event()


_all: weakref.WeakSet[LineHandler] = weakref.WeakSet()


def _forked() -> None:
    for handler in list(_all):
        handler._forget()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def line_handler(logger: logging.Logger) -> LineHandler | None:
    """Returns the handler if it is the only one that would get a record of ``logger`` at INFO, and sees it first."""
    found: list[logging.Handler] = []
    at: logging.Logger | None = logger
    if not logger.isEnabledFor(logging.INFO):
        return None
    while at is not None:
        found += [handler for handler in at.handlers if handler.level <= logging.INFO]
        if at is logger and at.filters:
            return None
        at = at.parent if at.propagate else None
    [handler] = found if len(found) == 1 else [None]
    return handler if isinstance(handler, LineHandler) and not handler.filters else None
