"""Connects to the database.  Its URL comes from the environment or your function, on the driver and each executor.

Spark shows options in plans, logs and web pages, so no option may contain a password.
"""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from django_pgqueue.spark.errors import DatabaseUnavailable, InvalidOption, of_postgresql

if TYPE_CHECKING:
    from django_pgqueue.spark.options import PipelineOptions

SECRETS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
SESSION: dict[str, str | int | None] = {
    "application_name": "pgqueue-spark",
    "client_encoding": "UTF8",  # what Spark reads and writes, whatever the database has
    "connect_timeout": 10,
    # A lost network is found in a minute, and not after the quarter of an hour, or the two hours, of the system.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


def refuse_password(url: str) -> None:
    """Refuses a URL with a password, and does not show it."""
    if found := sorted(SECRETS & _parsed(url, "Option url").keys()):
        message = (
            f"Option url has a {found[0]}, which Spark would show in plans and logs. Put the URL into an environment "
            "variable and name it (urlVariable), or name a function that returns it (credentials)."
        )
        raise InvalidOption(message)


def reading(options: PipelineOptions) -> str:
    """Returns the connection string for reads: the replica's, where there is one."""
    if options.replica_variable is not None:
        return _prepared(_variable(options.replica_variable, "replicaVariable"), options.replica_variable)
    return writing(options)


def writing(options: PipelineOptions) -> str:
    """Returns the connection string for writes.  Each process resolves its own, so it is never sent to an executor."""
    if options.credentials is not None:
        return _prepared(_provided(options.credentials), options.credentials)
    if options.url is not None:
        return _prepared(options.url, "Option url")
    return _prepared(_variable(options.url_variable, "urlVariable"), options.url_variable)


def connect(conninfo: str) -> psycopg.Connection:
    try:
        # A transaction pooler gives each statement another session, where nothing of this one is prepared.
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(unavailable(error)) from None


def without_quotes(conninfo: str) -> str:
    """Returns the connection string for sessions that quote no name without need."""
    options = conninfo_to_dict(conninfo).get("options") or os.environ.get("PGOPTIONS", "")
    return make_conninfo(conninfo, options=f"{options} -c quote_all_identifiers=off".lstrip())


def unavailable(error: Exception) -> str:
    """Returns libpq's message, which names host, port and user, but never the password."""
    return f"{of_postgresql(error)}: {str(error).strip()}"


def _prepared(conninfo: str, where: str) -> str:
    return make_conninfo("", **{**SESSION, **_parsed(conninfo, where)})


def _parsed(conninfo: str, where: str) -> dict[str, str | int | None]:
    try:
        found = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:  # its message may repeat the password
        message = f"{where} is not a URL in the format of libpq: postgresql://user@host:5432/database"
        raise InvalidOption(message) from None
    if "@" in str(found.get("host", ""))[1:]:  # libpq's message would show what follows it; a socket may begin with one
        message = f"{where} has an @ in the name of the host. In a URL, an @ of the password is written %40."
        raise InvalidOption(message)
    if not re.fullmatch(r"[0-9,]*", str(found.get("port") or "")):  # it may be a part of the password
        message = f"{where} has a port that is no number. In a URL, @ : / of the password are written %40 %3A %2F."
        raise InvalidOption(message)
    return found


def _variable(name: str, option: str) -> str:
    if value := os.environ.get(name):
        return value
    message = (
        f"The environment variable {name} is not set in this process (option {option}). Executors have an environment "
        "of their own: set it on their machines, or name a function that returns the URL (option credentials)."
    )
    raise InvalidOption(message)


def _provided(path: str) -> str:
    module, _, name = path.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"Option credentials: {path!r} cannot be imported here: {error}"
        raise InvalidOption(message) from error
    url = function()
    if not isinstance(url, str):
        message = f"Option credentials: {path} must return the URL as text, and returned a {type(url).__name__}."
        raise InvalidOption(message)
    return url
