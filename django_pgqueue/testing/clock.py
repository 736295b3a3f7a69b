"""The queue's clock in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connections, transaction
from django.db.backends.base.creation import TEST_DATABASE_PREFIX

from django_pgqueue import functions
from django_pgqueue.backend.lookup import database_of
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.functions import sql_files
from django_pgqueue.testing.drain import is_broken
from django_pgqueue.values.times import to_epoch_ms

if TYPE_CHECKING:
    import datetime as dt

    from django.db.backends.base.base import BaseDatabaseWrapper


class Clock:
    """The queue's clock of this database session, which tests move instead of waiting."""

    at: dt.datetime

    def __init__(self, start: dt.datetime | None, database: str) -> None:
        self.database = database
        self._start = start

    def __enter__(self) -> Self:
        make_movable(self.database)
        self.move_to(self._start or functions.now(connections[self.database]))
        return self

    def __exit__(self, *_: object) -> None:
        # A broken transaction refuses the statement, and its rollback resets the setting.
        if not is_broken(connections[self.database]):
            _set(self.database, "")

    async def __aenter__(self) -> Self:
        return await sync_to_async(self.__enter__)()

    async def __aexit__(self, *_: object) -> None:
        await sync_to_async(self.__exit__)()

    def move_to(self, at: dt.datetime) -> None:
        """Stops the clock at this time."""
        _set(self.database, str(to_epoch_ms(at)))
        self.at = at

    def advance(self, by: dt.timedelta) -> None:
        """Moves the clock on."""
        if not hasattr(self, "at"):
            message = "The clock does not stand still yet. Write: with clock() as now: now.advance(…)."
            raise PgQueueError(message)
        self.move_to(self.at + by)

    async def amove_to(self, at: dt.datetime) -> None:
        """The ``async`` variant of ``move_to``."""
        await sync_to_async(self.move_to)(at)

    async def aadvance(self, by: dt.timedelta) -> None:
        """The ``async`` variant of ``advance``."""
        await sync_to_async(self.advance)(by)


def clock(at: dt.datetime | None = None, *, database: str | None = None) -> Clock:
    """Stops the queue's clock of this database session at ``at`` (default: now).  The test moves it from there.

    ``database``: the alias of the database (default: that of the default backend, or the only one).

    >>> with clock() as now:
    ...     remind.using(run_after=timedelta(hours=1)).enqueue()
    ...     now.advance(timedelta(hours=1))
    ...     drain()  # doctest: +SKIP
    """
    return Clock(at, database_of(database))


IS_MOVABLE = "select prosrc like '%%pgqueue.now%%' from pg_proc where oid = 'pgqueue_now(timestamptz)'::regprocedure"
WHERE = """
select current_setting('search_path'), quote_ident(n.nspname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = 'pgqueue_message'::regclass
"""


def make_movable(database: str) -> None:
    """Installs sql/movable_clock.sql once in a test database: the clock of a queue that is in use cannot be moved."""
    connection = connections[database]
    with connection.cursor() as cursor:
        cursor.execute(IS_MOVABLE, ())
        if cursor.fetchone()[0]:
            return
        name = connection.settings_dict["NAME"]
        if not is_of_tests(connection):
            message = (
                f"The clock of the queue in the database {name!r} cannot be moved: its name is not the name of a test "
                "database. If it is a test database, run sql/movable_clock.sql in it as the owner of the queue."
            )
            raise PgQueueError(message)
        try:
            with transaction.atomic(using=database):
                cursor.execute(WHERE)
                path, own = cursor.fetchone()
                cursor.execute("select set_config('search_path', %s, true)", (own,))
                cursor.execute(sql_files.current("movable_clock"))
                cursor.execute("select set_config('search_path', %s, true)", (path,))
        except DatabaseError as error:
            message = (
                f"The clock of the queue in the database {name!r} cannot be moved: {error}. Run sql/movable_clock.sql "
                "in it once, as the owner of the queue."
            )
            raise PgQueueError(message) from error


def is_of_tests(connection: BaseDatabaseWrapper) -> bool:
    """Whether it is a test database: Django adds a number to the name in the settings if several tests run at once."""
    settings = connection.settings_dict
    return str(settings["NAME"]).startswith((TEST_DATABASE_PREFIX, settings["TEST"]["NAME"] or TEST_DATABASE_PREFIX))


def _set(database: str, epoch_ms: str) -> None:
    with connections[database].cursor() as cursor:
        cursor.execute("select set_config('pgqueue.now', %s, false)", (epoch_ms,))
