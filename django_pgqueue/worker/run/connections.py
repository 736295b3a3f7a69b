"""Leaves the connections of a thread clean after a job, so that nothing of it reaches the next one."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import psycopg
from django.conf import settings as django_settings
from django.db import close_old_connections, connections
from django.db.backends.signals import connection_created
from psycopg.pq import ExecStatus, TransactionStatus

from django_pgqueue.logs import in_a_line
from django_pgqueue.worker.run.cut_sessions import note_statement
from django_pgqueue.worker.run.session_reset import SessionState, answer, driver_of, state_of, watch

if TYPE_CHECKING:
    from django_pgqueue.functions import Received

logger = logging.getLogger("django_pgqueue.worker")


OPEN = (TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR)


class _Here(threading.local):
    has_connected = False  # an attribute that a thread does not have is ten times as slow to ask for


_here = _Here()
_pooled: dict[str, bool] = {}
"""The databases of this process's workers, and whether a transaction pooler stands in front of them."""
_assumes_roles = False
"""Whether Django assumes a role after it has connected to one of the project's databases."""


def clean_sessions(database: str, *, pooled: bool) -> None:
    """Called by a worker before its first job: from now on its sessions are put back as they were after connecting."""
    global _assumes_roles  # noqa: PLW0603 -- of the process
    _pooled[database] = pooled
    _assumes_roles = any("assume_role" in (one.get("OPTIONS") or {}) for one in connections.settings.values())


def _note_connection(connection: Any, **_: Any) -> None:
    _here.has_connected = True
    if _pooled and (session := driver_of(connection.connection)) is not None:
        state = state_of(session)
        if state is None:
            watch(session, pooled=_is_pooled(connection))
        elif not state.is_being_put_back and state.has_changed(session):
            _restore(connection, session, state)  # a job has closed it, which gave it back to Django's pool


def _is_pooled(connection: Any) -> bool:
    """Whether others use its sessions too, because a pooler lends them for each transaction."""
    return _pooled.get(connection.alias, False) or bool(connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))


connection_created.connect(_note_connection, dispatch_uid="django_pgqueue.worker.run.connections")


def has_connected() -> bool:
    """Whether this thread has ever opened a connection, which then has to be left clean: to look at the connections
    costs more than a small job does.
    """
    if _here.has_connected or not _assumes_roles:
        return _here.has_connected
    return any(map(is_unfinished, connections.all(initialized_only=True)))  # Django tells nobody of such a session


def leave_connections_clean(message: Received, *, shared: bool = False) -> None:
    """``shared``: other tasks use this thread's connections just now, and may be reading from a cursor."""
    for connection in connections.all(initialized_only=True):
        _roll_back_if_open(connection, message, "The task")
        if getattr(connection.connection, "closed", False) or is_unfinished(connection):
            connection.close()  # closed below Django, which would go on with it
        _put_back(connection, shared=shared)
        if _is_for_one_request(connection):
            connection.close_at = None  # the next job follows: connecting anew takes longer than most jobs
        if connection.errors_occurred and connection.connection is not None:
            connection.errors_occurred = False
            if not answers(connection):
                connection.close()
        if not shared:
            connection.close_if_unusable_or_obsolete()
        if django_settings.DEBUG:
            connection.queries_log.clear()


def _put_back(connection: Any, *, shared: bool) -> None:
    """Puts back what the job has changed in the connection.  Where others share it, only what is the driver's: settings
    may be those of another task, and so may what is in Django's lists.
    """
    is_wrapped = not shared and _unwrap(connection)
    session = driver_of(connection.connection)
    state = state_of(session)
    try:
        if session is not None and state is not None:
            if shared:
                _put_driver_back(session, state)
            elif is_wrapped or state.has_changed(session):
                _restore(connection, session, state)
        elif is_wrapped and connection.connection is not None:
            connection.close()  # another driver's: the next one has what receivers of connection_created set
    except Exception as error:  # noqa: BLE001 -- the next job connects anew
        logger.debug("The worker cannot reset a session, and closes it: %s", error)
        connection.close()


def _unwrap(connection: Any) -> bool:
    """Makes Django's connection what it was before it connected.  Returns whether it was not."""
    kept = [wrapper for wrapper in connection.execute_wrappers if wrapper is note_statement]
    if len(kept) == len(connection.execute_wrappers) and not connection.force_debug_cursor:
        return False
    connection.execute_wrappers[:] = kept
    connection.force_debug_cursor = False
    return True


def _put_driver_back(session: Any, state: SessionState) -> None:
    if state.driver.differs(session):
        state.driver.put_back(session)


def _restore(connection: Any, session: Any, state: SessionState) -> None:
    """Puts the session back.  Receivers of connection_created that set something in it are called again: what they
    have set may be invisible, and without a worker they would be called for each request.
    """
    state.is_being_put_back = True
    try:
        state.put_back(session)
        if _has_receivers_of_others():
            connection_created.send(sender=connection.__class__, connection=connection)
    except Exception:
        session.close()  # a pool would lend it again
        raise
    finally:
        state.is_used = state.is_being_put_back = False


def _has_receivers_of_others() -> bool:
    return any(not str(key[0]).startswith("django_pgqueue.") for key, *_ in connection_created.receivers)


def close_idle_connections() -> None:
    """Called when a thread has had no job for some seconds."""
    for connection in connections.all(initialized_only=True):
        if _is_for_one_request(connection):
            connection.close()


def close_stale_connections() -> None:
    """Called when a thread has a job again: closes what a request would not get either, and those whose session the
    server, or a firewall between, has ended meanwhile.
    """
    close_old_connections()
    close_lost_connections()


def close_lost_connections() -> None:
    """Closes those whose session has ended, in a thread whose connections jobs use all the time."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not _is_in_transaction(connection) and not answers(connection):
            connection.close()


def is_unfinished(connection: Any) -> bool:
    """Whether Django has connected and failed then, at the role to assume, say.  It would go on without that."""
    session = driver_of(connection.connection)
    return bool(_pooled) and session is not None and state_of(session) is None and not connection.in_atomic_block


def answers(connection: Any) -> bool:
    """Django's ``is_usable``, with an end to the wait."""
    session = driver_of(connection.connection)
    if session is None:
        return bool(connection.is_usable())
    try:
        return answer(session.pgconn, b"").status == ExecStatus.EMPTY_QUERY
    except psycopg.Error:
        return False


def _is_for_one_request(connection: Any) -> bool:
    """Whether Django would close it after each request: CONN_MAX_AGE is 0, Django's default.  A pool gets its
    connections back, and does not need this.
    """
    return connection.settings_dict["CONN_MAX_AGE"] == 0 and not connection.settings_dict["OPTIONS"].get("pool")


def roll_back_what_is_open(message: Received, who: str) -> None:
    """Rolls back open transactions, which nothing else would end: later writes would seem to be stored, and would not
    be.
    """
    for connection in connections.all(initialized_only=True):
        _roll_back_if_open(connection, message, who)
        if is_unfinished(connection):
            connection.close()


def _roll_back_if_open(connection: Any, message: Received, who: str) -> None:
    if connection.connection is not None and _is_in_transaction(connection):
        logger.error(
            "%s of message id=%s task=%s left a transaction open: the worker rolls it back.",
            who,
            message.id,
            in_a_line(message.task),
        )
        # Django really closes a connection, and opens it anew on its next use, only if it knows of no transaction.
        connection.in_atomic_block = connection.closed_in_transaction = False
        connection.close()


def _is_in_transaction(connection: Any) -> bool:
    if connection.in_atomic_block or not connection.autocommit:
        return True
    pgconn = getattr(connection.connection, "pgconn", None)  # a BEGIN that went around Django
    return pgconn is not None and pgconn.transaction_status in OPEN
