"""The database of workers whose server is not the tests' own: its addresses stand in the environment."""

import os
from typing import Any

POOLED = os.environ.get("STORM_POOLED") == "1"
"""Behind PgBouncer in transaction mode."""
POOL = os.environ.get("STORM_POOL") == "1"
"""psycopg's, in each process."""


def database() -> dict[str, Any]:
    """Of two addresses libpq takes the one that can be written to, before and after a failover."""
    isolation = os.environ.get("STORM_ISOLATION")
    options: dict[str, Any] = {"connect_timeout": 5}
    options["target_session_attrs"] = os.environ.get("STORM_SESSIONS", "read-write")
    if POOL:
        options["pool"] = True
    if isolation:
        from psycopg import IsolationLevel

        options["isolation_level"] = IsolationLevel[isolation]
    ports = os.environ.get("STORM_PORTS", "5432")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "storm",
        "USER": os.environ.get("STORM_USER", "storm"),
        "PASSWORD": os.environ.get("STORM_PASSWORD", ""),
        "HOST": ",".join("127.0.0.1" for _ in ports.split(",")),
        "PORT": ports,
        "CONN_MAX_AGE": 0 if POOL else 60,
        "DISABLE_SERVER_SIDE_CURSORS": POOLED,
        "OPTIONS": options,
    }
