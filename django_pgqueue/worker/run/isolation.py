"""Isolation levels of the transactions of atomic tasks."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import IsolationLevel

_default_levels: WeakKeyDictionary[psycopg.Connection[Any], str] = WeakKeyDictionary()


def sees_one_snapshot(connection: Any) -> bool:
    """Whether a transaction on Django's ``connection`` keeps seeing the queue as it was when it began, and cannot
    change a row that another one has changed since.  The server is asked once for each of its sessions.
    """
    connection.ensure_connection()
    session = connection.connection
    if session.isolation_level is not None:  # OPTIONS of the database
        return bool(session.isolation_level >= IsolationLevel.REPEATABLE_READ)
    level = _default_levels.get(session)
    if level is None:
        with connection.wrap_database_errors:
            [level] = session.execute("show default_transaction_isolation").fetchone()
        _default_levels[session] = level
    return level in ("repeatable read", "serializable")
