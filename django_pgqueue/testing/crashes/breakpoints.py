"""Breakpoints of a task, at which it can be killed: each statement and commit on this thread's Django connections."""

from __future__ import annotations

import asyncio
import inspect
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import connections

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from django_pgqueue.compat import AnyTask

MAX_SQL = 200


class ProcessKilled(BaseException):
    """Simulates the end of the process.  It is no Exception, so that no handler of the task catches it as an error."""


class Breakpoints:
    """Counts statements and commits, and cuts the connections after number ``stop_after`` (None: never)."""

    def __init__(self, task: AnyTask, *, stop_after: int | None) -> None:
        self.stop_after = stop_after
        self.is_stopped = False
        self.places: list[tuple[str, str]] = []
        """Line of the handler and SQL of each statement so far."""
        self._file = inspect.unwrap(task.func).__code__.co_filename
        self._coroutine: Any = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            for alias in connections:
                connection: Any = connections[alias]
                stack.enter_context(connection.execute_wrapper(self._executed))
                stack.enter_context(self._commits(connection))
            yield

    @contextmanager
    def _commits(self, connection: Any) -> Iterator[None]:
        """Counts commits as well: for Django they are no statements, and a crash right after one would be left out."""
        commit = connection._commit  # noqa: SLF001

        def watched() -> Any:
            self._refuse_if_stopped()
            answer = commit()
            self._passed("COMMIT")
            return answer

        connection._commit = watched  # noqa: SLF001
        try:
            yield
        finally:
            del connection._commit  # noqa: SLF001

    def _executed(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        self._refuse_if_stopped()
        answer = execute(sql, params, many, context)
        self._passed(" ".join(str(sql).split()))
        return answer

    def _refuse_if_stopped(self) -> None:
        """Keeps all further statements from running, even those in a finally block."""
        if self.is_stopped:
            raise ProcessKilled

    def _passed(self, sql: str) -> None:
        shown = sql if len(sql) <= MAX_SQL else f"{sql[:MAX_SQL]}…"
        self.places.append((self._place(), shown))
        if len(self.places) == self.stop_after:
            self.is_stopped = True
            self.cut()
            raise ProcessKilled

    def cut(self) -> None:
        """Closes the connections as the end of the process would: the server rolls back what is not committed."""
        for connection in connections.all(initialized_only=True):
            driver: Any = connection.connection
            if driver is not None and hasattr(driver, "pgconn"):
                driver.close()

    def bury(self) -> None:
        """Resets Django's state of the connections that were cut, in which transactions may have been open."""
        for connection in connections.all(initialized_only=True):
            driver: Any = connection.connection
            if connection.in_atomic_block or (driver is not None and getattr(driver, "closed", False)):
                connection.connection = None  # the next statement opens a new one, with the state of a new connection
                connection.in_atomic_block = connection.needs_rollback = connection.closed_in_transaction = False
                connection.savepoint_ids, connection.atomic_blocks, connection.run_on_commit = [], [], []

    # The line of the handler

    def follow_this_coroutine(self) -> None:
        task = asyncio.current_task()
        self._coroutine = None if task is None else task.get_coro()

    def _place(self) -> str:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
        while frame is not None:
            if frame.f_code.co_filename == self._file:
                return self._named(frame)
            frame = frame.f_back
        return self._place_of_coroutine()

    def _place_of_coroutine(self) -> str:
        """Returns the line at which an async task awaits its statement, which runs on another stack."""
        place, coroutine = "", self._coroutine
        while coroutine is not None:
            frame = getattr(coroutine, "cr_frame", None)
            if frame is not None and frame.f_code.co_filename == self._file:
                place = self._named(frame)
            coroutine = getattr(coroutine, "cr_await", None)
        return place

    def _named(self, frame: FrameType) -> str:
        path = Path(self._file)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f"{shown}:{frame.f_lineno}"
