"""What one job did to the connections of a thread must not reach the next one."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings
from django.db import connections
from django.db.backends.signals import connection_created

from django_pgqueue.logs import in_a_line

if TYPE_CHECKING:
    from django_pgqueue.functions import Received

logger = logging.getLogger("django_pgqueue.worker")


IDLE_SECONDS = 5.0
"""Who has had no job for so long closes the connections that Django would close after each."""

_here = threading.local()


def _note_connection(**_: Any) -> None:
    _here.has_connected = True


connection_created.connect(_note_connection, dispatch_uid="django_pgqueue.worker.cleaning")


def has_connected() -> bool:
    """Whether this thread has ever opened a connection, which has to be left clean: to look costs more than a small job
    does.
    """
    return getattr(_here, "has_connected", False)


def leave_connections_clean(message: Received, *, shared: bool = False) -> None:
    """``shared``: other tasks use this thread's connections just now, and may be reading from a cursor."""
    for connection in connections.all(initialized_only=True):
        _roll_back_if_open(connection, message, "The task")
        if getattr(connection.connection, "closed", False):
            connection.close()  # below Django, which would go on with it
        if _is_for_one_request(connection):
            connection.close_at = None  # the next job follows: connecting anew takes longer than most jobs
        if not shared or (connection.errors_occurred and connection.connection and not connection.is_usable()):
            connection.close_if_unusable_or_obsolete()
        if django_settings.DEBUG:
            connection.queries_log.clear()


def close_idle_connections() -> None:
    """Nothing has followed for ``IDLE_SECONDS``."""
    for connection in connections.all(initialized_only=True):
        if _is_for_one_request(connection):
            connection.close()


def _is_for_one_request(connection: Any) -> bool:
    """With CONN_MAX_AGE = 0, Django's default.  A pool gets its connections back, and does not need this."""
    return connection.settings_dict["CONN_MAX_AGE"] == 0 and not connection.settings_dict["OPTIONS"].get("pool")


def roll_back_what_is_open(message: Received, who: str) -> None:
    """Nobody else would end that transaction: what came after would seem to be written, and not be."""
    for connection in connections.all(initialized_only=True):
        _roll_back_if_open(connection, message, who)


def _roll_back_if_open(connection: Any, message: Received, who: str) -> None:
    if connection.connection is not None and _is_in_transaction(connection):
        logger.error(
            "%s of message id=%s task=%s left a transaction open: it is rolled back.",
            who,
            message.id,
            in_a_line(message.task),
        )
        # Only a connection that knows of no transaction is really closed, and begins anew when it is used again.
        connection.in_atomic_block = connection.closed_in_transaction = False
        connection.close()


def _is_in_transaction(connection: Any) -> bool:
    return bool(connection.in_atomic_block or not connection.autocommit)
