"""Jobs begin with a connection, for a while after others of their process got none.

A server that is full, or away, refuses a connection within a millisecond.  A worker that goes on with the next job, and
the next, has failed its whole queue before anybody has seen the first error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from django.db import DataError, InterfaceError, OperationalError, ProgrammingError, connections

from django_pgqueue.consumer.errors import causes, first_line
from django_pgqueue.logs import in_a_line
from django_pgqueue.tasks import retry
from django_pgqueue.tasks.context import Deferral
from django_pgqueue.worker.run.connections import answers, is_unfinished
from django_pgqueue.worker.run.shared_thread import shared_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.worker.run.execution import Execution

T = TypeVar("T")

logger = logging.getLogger("django_pgqueue.worker")

SECONDS = 60.0
PAUSES = (0.1, 0.3, 1.0, 2.0, None)
MAX_TRY_SECONDS = 10.0
"""No further try begins after that: one may take as long as the network, or a pool, lets it."""
MAX_UNCONNECTED_SECONDS = 60.0
"""The longest wait before a job is tried again that got no connection."""
MAX_BEHIND_SECONDS = 1.0
"""No begin, and no end, waits longer than that behind another job in the shared thread."""
NO_CONNECTION = (OperationalError, InterfaceError, OSError)
"""The last one: this process may open no more files."""
OF_CONNECTIONS = (psycopg.OperationalError, psycopg.InterfaceError)
LOST = ("08", "57P", "53300")
"""How the SQLSTATE of a lost connection, or of none, begins.  Most have no SQLSTATE.  Lock and statement time-outs are
operational errors too, and their connections are as good as before."""


class ConnectFirst:
    """Whether the jobs of a process do.  Its slots, and its own thread, tell of lost connections."""

    __slots__ = ("_until", "is_connecting")

    def __init__(self) -> None:
        self._until = 0.0
        self.is_connecting = False
        """The shared thread connects for a job that begins."""

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self._until

    def turn_on(self) -> None:
        self._until = time.monotonic() + SECONDS

    def learn(self, execution: Execution, exception: BaseException) -> None:
        """Called where the task ran, with the reason of its failure."""
        connection = connections[execution.backend.settings.database]
        if is_unfinished(connection):
            connection.close()
            self.turn_on()
        elif is_of_a_connection(exception) and not _is_connected(connection):
            self.turn_on()

    async def alearn(self, execution: Execution, exception: BaseException) -> None:
        if any(issubclass(type(cause), psycopg.Error) for cause in causes(exception)):
            asked = shared_thread().submit(self.learn, execution, exception)
            with contextlib.suppress(asyncio.CancelledError):  # the job has ended already
                await asyncio.wait([asyncio.wrap_future(asked)], timeout=MAX_BEHIND_SECONDS)

    async def aconnect(self, database: str) -> None:
        """Connects in the shared thread, unless the call of another job keeps it: then that connection is not asked."""
        call = Context().run(shared_thread().submit, self._connect, database)  # no call of the job's own
        asked = asyncio.wrap_future(call)
        try:
            while not asked.done():
                await asyncio.wait([asked], timeout=MAX_BEHIND_SECONDS)
                if not (asked.done() or self.is_connecting):
                    return
            asked.result()
        finally:
            asked.cancel()

    def _connect(self, database: str) -> None:
        self.is_connecting = True
        try:
            _connect(database)
        finally:
            self.is_connecting = False


def is_of_a_connection(exception: BaseException) -> bool:
    return any(
        issubclass(type(cause), OF_CONNECTIONS) and (cause.sqlstate is None or cause.sqlstate.startswith(LOST))  # type: ignore[attr-defined]
        for cause in causes(exception)
    )


def _is_connected(connection: Any) -> bool:
    session: Any = connection.connection
    return session is not None and not session.closed


def connect(execution: Execution) -> None:
    connected(execution, partial(_connect, execution.backend.settings.database))


async def aconnect(execution: Execution, connect_first: ConnectFirst) -> None:
    with shared_thread().waiting(execution):
        tries = Tries(execution)
        while True:
            try:
                return await connect_first.aconnect(execution.backend.settings.database)
            except NO_CONNECTION as error:
                pause_seconds = tries.pause_seconds(error)
            await asyncio.sleep(pause_seconds)


def _connect(database: str) -> None:
    connection = connections[database]
    if connection.in_atomic_block:
        return
    if connection.connection is not None:
        if answers(connection) and not is_unfinished(connection):  # another async job may be reading from it
            return
        connection.close()
    established(connection)
    if connection.settings_dict["OPTIONS"].get("pool"):  # others may need it, and this job may never do
        _give_back(connection)


def established(connection: Any) -> Any:
    """Connects, unless Django has.  A role that may not be assumed, or is gone, is no connection either."""
    try:
        connection.ensure_connection()
    except (DataError, ProgrammingError) as error:
        connection.close()  # Django would go on without the role
        raise OperationalError(str(error)) from error
    return connection


def _give_back(connection: Any) -> None:
    is_alive = answers(connection)
    connection.close()
    if not is_alive:  # the pool drops it
        message = "the pool had a connection that is lost"
        raise OperationalError(message)


def connected(execution: Execution, ask: Callable[[], T]) -> T:
    """Returns what ``ask`` does.  It looks for a connection for some seconds, which are none of the job's timeout: a
    worker without one must not hurry through its queue and put back, or fail, one message after the other.
    """
    with shared_thread().waiting(execution):
        tries = Tries(execution)
        while True:
            try:
                return ask()
            except NO_CONNECTION as error:
                pause_seconds = tries.pause_seconds(error)
            _forget_closed(execution.backend.settings.database)
            time.sleep(pause_seconds)


class Tries:
    """How often and how long one job looks for its connection."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self._pauses = iter(PAUSES)
        self._until = time.monotonic() + MAX_TRY_SECONDS

    def pause_seconds(self, error: Exception) -> float:
        """Returns the pause before the next try, or puts the job back."""
        seconds = next(self._pauses)
        if seconds is None or self.execution.is_over or time.monotonic() >= self._until:
            raise _not_begun(self.execution, error) from error
        return seconds


def _forget_closed(database: str) -> None:
    """Django goes on with a session that ended at its first statement, as those of a pooler do."""
    connection = connections[database]
    if connection.connection is not None and connection.connection.closed:
        connection.close()


def _not_begun(execution: Execution, error: Exception) -> Deferral:
    message = execution.message
    logger.warning(
        "not begun id=%s task=%s attempt=%s: it got no connection: %s",
        message.id, in_a_line(message.task), message.attempt, first_line(error),
    )  # fmt: skip
    return Deferral(min(retry.DEFAULT.seconds(attempt=message.attempt), MAX_UNCONNECTED_SECONDS), None)
