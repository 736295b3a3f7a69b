"""Ends the database sessions of a thread whose task goes on after its time, and with them the locks that they hold."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import psycopg
from django.db.backends.signals import connection_created

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.logs import log_trouble
from django_pgqueue.worker.run.session_reset import driver_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_pgqueue.functions import Received

logger = logging.getLogger("django_pgqueue.worker")

MAX_CANCEL_SECONDS = 5.0
"""The end of the attempt waits this long at most."""


class Sessions:
    """The sessions that one thread has opened through Django."""

    def __init__(self) -> None:
        self.are_shared = False
        """Async tasks do their database work in this thread, whoever has opened its sessions."""
        self._opened: list[weakref.ref[BaseDatabaseWrapper]] = []
        self._is_cut = False

    def note(self, connection: BaseDatabaseWrapper) -> None:
        """Called by the thread, when it has connected."""
        if self._is_cut:
            connection.close()
            message = (
                "The timeout of this task has run out, and its attempt has ended: the task cannot connect to "
                "the database again."
            )
            raise TaskTimeout(message)
        if not any(known() is connection for known in self._opened):
            self._opened = [known for known in self._opened if known() is not None]
            self._opened.append(weakref.ref(connection))

    def end(self) -> int:
        """Called by another thread.  Returns how many sessions it ended."""
        self._is_cut = True
        wrappers = [known() for known in self._opened]
        opened = [driver_of(wrapper.connection) for wrapper in wrappers if wrapper is not None]
        return sum(_cut(one) for one in opened if one is not None)


def cut(sessions: Sessions, message: Received) -> None:
    """Ends the sessions.  Never raises: the attempt has to end."""
    try:
        if count := sessions.end():
            logger.warning("cut id=%s task=%s sessions=%s: its timeout ran out", message.id, message.task, count)
    except Exception as error:  # noqa: BLE001
        log_trouble(
            f"The worker could not end the database sessions of message id={message.id}, whose timeout has run out.",
            error,
        )


_here = threading.local()


def sessions_of_this_thread() -> Sessions:
    try:
        return _here.sessions  # type: ignore[no-any-return]
    except AttributeError:
        _here.sessions = Sessions()
        return _here.sessions  # type: ignore[no-any-return]


running: ContextVar[object | None] = ContextVar("pgqueue_running", default=None)
"""The attempt of an async task, in its coroutine and in the thread of its database work."""
_statements: dict[object, BaseDatabaseWrapper] = {}
"""The connections whose statements async tasks wait for, by attempt."""
_statements_lock = threading.Lock()


def waits_for_statement(attempt: object) -> bool:
    return attempt in _statements


def cancel_statement(attempt: object, message: Received) -> None:
    """Cancels the statement that an async task waits for.  All async tasks share a thread and its connections, so no
    other statement may be hit: while the lock is held this one cannot end, and no other one begins.
    """
    with _statements_lock:
        wrapper = _statements.get(attempt)
        session = None if wrapper is None else driver_of(wrapper.connection)
        if session is None:
            return
        with contextlib.suppress(psycopg.Error, OSError):
            session.cancel_safe(timeout=MAX_CANCEL_SECONDS)
    logger.warning("cut id=%s task=%s statements=1: its timeout ran out", message.id, message.task)


def note_statement(execute: Callable[..., Any], sql: Any, params: Any, many: Any, context: dict[str, Any]) -> Any:
    """Wraps the statements of connections that async tasks share."""
    attempt = running.get()
    if attempt is None:
        return execute(sql, params, many, context)
    _statements[attempt] = context["connection"]
    try:
        return execute(sql, params, many, context)
    finally:
        with _statements_lock:
            _statements.pop(attempt, None)


def _note(connection: BaseDatabaseWrapper, **_: Any) -> None:
    sessions = sessions_of_this_thread()
    sessions.note(connection)
    if (sessions.are_shared or running.get() is not None) and note_statement not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, note_statement)


connection_created.connect(_note, dispatch_uid="django_pgqueue.worker.run.cut_sessions")


def _cut(connection: psycopg.Connection[Any]) -> bool:
    """Cancels the statement first: a server that executes one does not see that its client is gone.  By way of libpq,
    which goes through poolers.
    """
    with contextlib.suppress(psycopg.Error, OSError):
        connection.cancel_safe(timeout=MAX_CANCEL_SECONDS)
    with contextlib.suppress(psycopg.Error, OSError):
        return _hang_up(connection)
    return False


def _hang_up(connection: psycopg.Connection[Any]) -> bool:
    """Shuts down the socket and touches nothing else: the thread may be in libpq, which is for one thread at a time."""
    number = connection.fileno()
    with socket.socket(fileno=os.dup(number)) as same:
        # If it is still open now, it was when its number was duplicated: no connection is opened twice.
        if connection.closed or connection.fileno() != number:
            return False
        same.shutdown(socket.SHUT_RDWR)
    return True
