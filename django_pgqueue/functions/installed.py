"""Which release of the queue is installed in a database: see sql/queue/pgqueue_version.sql."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import DatabaseError, connections
from psycopg import errors

from django_pgqueue.exceptions import HalfInstalled, OutdatedQueue
from django_pgqueue.functions import pins, sql_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.functions.connection import Connection

VERSION = re.compile(r"^    select '(\d+\.\d+\.\d+)'$", re.MULTILINE)

# The catalogue, and no call: the function must be that of the same queue, where the search_path finds several.
SOURCE = """
select n.nspname::text, (
    select p.prosrc from pg_proc p where p.pronamespace = c.relnamespace and p.proname = 'pgqueue_version'
)
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'pgqueue_message' and c.oid = {which}
"""
FOUND = SOURCE.format(which="to_regclass('pgqueue_message')")
HERE = SOURCE.format(which="to_regclass(quote_ident(current_schema()) || '.pgqueue_message')")

# The search_path skips schemas that the login may not use.
HIDDEN = """
select n.nspname::text, current_user::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'pgqueue_message' and c.relkind = 'r' and to_regclass('pgqueue_message') is null
  and not has_schema_privilege(n.oid, 'usage')
"""

PARTS = """
select t.name::text from unnest(%s::text[]) as t (name)
where exists (
        select from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = current_schema() and c.relname = t.name
    )
    or exists (
        select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = current_schema() and p.proname = t.name
    )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The queue of a schema."""

    schema: str
    version: str

    @property
    def is_outdated(self) -> bool:
        """Whether this code needs more than is installed."""
        return sql_files.number(self.version) < sql_files.number(needed())

    @property
    def is_newer(self) -> bool:
        """Whether it is the queue of a later release than this code."""
        return self.is_after(needed())

    def is_after(self, version: str) -> bool:
        return sql_files.number(self.version) > sql_files.number(version)


def needed() -> str:
    """Returns the version that this code needs."""
    return version_in(sql_files.current("pgqueue_version"))


def version_after(release: str) -> str:
    """Returns the release that follows ``release``, which may be the coming one."""
    return sql_files.release_after(release) or needed()


def version_in(text: str) -> str:
    """Returns the version that a text of ``pgqueue_version`` returns.

    >>> version_in("    -- Returns the release.\\n    select '0.2.0'\\n")
    '0.2.0'
    """
    found = VERSION.search(text)
    if found is None:
        message = f"pgqueue_version returns no version: {text}"
        raise ValueError(message)
    return found[1]


def installed_queue(connection: Connection) -> Installed | None:
    """Returns the queue that the search_path finds, which is the one that this code uses.  None: there is none."""
    return _installed(connection, FOUND)


def hidden_queues(connection: Connection) -> list[tuple[str, str]]:
    """Returns (schema, user) of queues in schemas that this login may not use, where the search_path finds none: it
    looks to this login as if there were no queue.
    """
    with connection.cursor() as cursor:
        cursor.execute(HIDDEN, ())
        return [(schema, user) for schema, user in cursor.fetchall()]


def installed_here(connection: Connection) -> Installed | None:
    """Returns the queue in the first schema of the search_path, where the migrations would make one."""
    return _installed(connection, HERE)


def _installed(connection: Connection, sql: str) -> Installed | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, ())
        row = cursor.fetchone()
    if row is None:
        return None
    schema, source = row
    return Installed(schema=schema, version=sql_files.FIRST if source is None else version_in(source))


def require_queue(connection: Connection, database: str) -> None:
    """Raises OutdatedQueue if the queue of ``database`` is older than this code or lacks all functions."""
    found = installed_queue(connection)
    if found is not None and found.is_outdated:
        moved = pins.apart(connection)  # no version is found then, and an upgrade does nothing
        if moved is not None:
            message = f"{moved} Run psql -f sql/repin.sql as the owner of the queue."
            raise OutdatedQueue(message)
        raise OutdatedQueue(outdated(found, database))


def outdated(found: Installed, database: str) -> str:
    return (
        f"The database {database!r} has the queue of {found.version}, and this code needs that of {needed()}. "
        f"{remedy(database)}"
    )


def remedy(database: str) -> str:
    return f"Run manage.py migrate django_pgqueue --database {database} or, without Django, psql -f sql/upgrade.sql"


@contextmanager
def explained(database: str) -> Iterator[None]:
    """Raises OutdatedQueue where a statement needs a function, a column or a table that the database lacks.

    Raises ImproperlyConfigured if the database is no PostgreSQL, or the app is not installed.
    """
    try:
        yield
    except SynchronousOnlyOperation as error:
        message = (
            f"{error} Or await the call's async variant, where it has one: aenqueue, arefresh, aget_result, aresults, "
            "aemit, apublish."
        )
        raise SynchronousOnlyOperation(message) from error
    except Exception as error:
        _require_postgresql(database, error)
        cause = error if error.__cause__ is None else error.__cause__  # Django's errors have that of psycopg
        if not isinstance(cause, (errors.UndefinedFunction, errors.UndefinedColumn, errors.UndefinedTable)):
            raise
        _require_app(database, error)
        message = (
            f"The queue in the database {database!r} lacks what this code needs ({cause.diag.message_primary}), and "
            f"nothing was done. {remedy(database)}. If the queue is in a schema that the search_path of this "
            "connection does not name, as after a switch to a tenant, add it there. If this login may not use the "
            "schema, grant usage on it: manage.py qdoctor names it."
        )
        raise OutdatedQueue(message) from error


def _require_postgresql(database: str, error: Exception) -> None:
    """Raises ImproperlyConfigured if the statement has failed because the database is another one."""
    if isinstance(error, DatabaseError) and (vendor := connections[database].vendor) != "postgresql":
        message = (
            f"The queue is in the database {database!r}, which is {vendor}, and it needs PostgreSQL. Point DATABASES "
            "at PostgreSQL, or DATABASE in the OPTIONS of TASKS at an alias that is PostgreSQL. Nothing was done."
        )
        raise ImproperlyConfigured(message) from error


def _require_app(database: str, error: Exception) -> None:
    """Raises ImproperlyConfigured if the app is not installed, so that migrate has made no tables."""
    if not apps.is_installed("django_pgqueue"):
        message = (
            "'django_pgqueue' is not in INSTALLED_APPS. Add it, and run manage.py migrate --database "
            f"{database}, which makes the tables of the queue. Nothing was done."
        )
        raise ImproperlyConfigured(message) from error


def parts_here(connection: Connection, names: list[str]) -> set[str]:
    """Returns which of these tables and functions are in the first schema of the search_path."""
    with connection.cursor() as cursor:
        cursor.execute(PARTS, (names,))
        return {name for (name,) in cursor.fetchall()}


def require_whole(connection: Connection, database: str) -> Installed | None:
    """Returns the queue in the first schema of the search_path.  Raises HalfInstalled if a part of it is missing."""
    found = installed_here(connection)
    wanted = sql_files.parts(sql_files.FIRST if found is None else found.version)
    there = parts_here(connection, wanted)
    if found is not None and found.is_newer:
        return found  # of a later version, whose parts this code does not know
    missing = [name for name in wanted if name not in there]
    if there and missing:
        raise HalfInstalled(half_installed(database, there, missing))
    return found


def misplaced(found: Installed) -> HalfInstalled:
    message = (
        f"There is no queue in the first schema of the search_path. It finds one in {found.schema!r}, and nothing was "
        f"changed. Run the migration with the search_path that the queue was made with: {found.schema!r} first."
    )
    return HalfInstalled(message)


def half_installed(database: str, there: set[str], missing: list[str]) -> str:
    shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    return (
        f"The database {database!r} has {len(there)} parts of a queue, but lacks {shown}. Nothing was changed. If you "
        "need no message of it, run psql -f sql/uninstall.sql and then this again. Otherwise restore what is missing "
        "from sql/ of its release."
    )
