"""Tasks that change their session with the server, and one that looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connection
from psycopg import IsolationLevel
from psycopg.rows import dict_row, tuple_row
from psycopg.types.string import TextLoader

from django_pgqueue.tasks import task

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg
    from psycopg.abc import Buffer

SQL = {
    "search_path": "set search_path = pg_catalog",
    "role": "set role pg_read_all_data",
    "session authorization": "set session authorization pg_read_all_data",
    "read only": "set session characteristics as transaction read only",
    "isolation": "set session characteristics as transaction isolation level serializable",
    "statement_timeout": "set statement_timeout = '7s'",
    "time zone": "set time zone 'Asia/Tokyo'",
    "a setting of the project": "select set_config('shop.tenant', 'acme', false)",
    "a setting of the project, below": "do $$ begin perform set_config('shop.tenant', 'acme', false); end $$",
    "reset": "reset all",
    "advisory lock": "select pg_advisory_lock(4711)",
    "shared advisory lock": "select pg_advisory_lock_shared(4712)",
    "temporary table": "create temp table leaver (n integer)",
    "temporary table above others": "create temp table worker_row (word text)",
    "prepared statement": "prepare leaver as select 1",
    "listen": "listen leaver",
    "cursor": "declare leaver cursor with hold for select 1",
    "transaction": "begin; insert into worker_row (word) values ('never committed')",
    "broken transaction": "begin; do $$ begin perform 1 / 0; exception when others then null; end $$; savepoint s",
}


def in_sql(statement: str) -> Callable[[], None]:
    def change() -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    return change


def below_django() -> None:
    connection.ensure_connection()
    connection.connection.execute("set statement_timeout = '8s'")


def of_the_driver() -> None:
    connection.ensure_connection()
    connection.connection.isolation_level = IsolationLevel.SERIALIZABLE
    connection.connection.read_only = True


class OtherTextLoader(TextLoader):
    def load(self, data: Buffer) -> str:  # noqa: ARG002 -- psycopg calls it so
        return "another"


def autocommit_of_the_driver() -> None:
    """A write would seem to be stored from now on, and be seen by its own session."""
    connection.ensure_connection()
    connection.connection.autocommit = False


def rows_of_the_driver() -> None:
    """Nothing is said to the server."""
    connection.connection.row_factory = tuple_row if connection.connection.row_factory is dict_row else dict_row


def prepared_by_the_driver() -> None:
    connection.ensure_connection()
    connection.connection.prepare_threshold = 0
    connection.connection.prepared_max = 1


def adapters_of_the_driver() -> None:
    connection.ensure_connection()
    connection.connection.adapters.register_loader("text", OtherTextLoader)


def handlers_of_the_driver() -> None:
    connection.ensure_connection()
    connection.connection.add_notice_handler(print)
    connection.connection.add_notify_handler(print)


def wrapper_of_django() -> None:
    connection.execute_wrappers.append(lambda execute, *args: execute(*args))
    connection.force_debug_cursor = True


def and_close() -> None:
    """Which gives it back to Django's pool, where there is one."""
    in_sql("set statement_timeout = '9s'")()
    connection.close()


LEAVERS: dict[str, Callable[[], None]] = {
    **{name: in_sql(statement) for name, statement in SQL.items()},
    "below Django": below_django,
    "of the driver": of_the_driver,
    "autocommit of the driver": autocommit_of_the_driver,
    "rows of the driver": rows_of_the_driver,
    "prepared by the driver": prepared_by_the_driver,
    "adapters of the driver": adapters_of_the_driver,
    "handlers of the driver": handlers_of_the_driver,
    "and closes": and_close,
}
OF_THE_DRIVER = [name for name in LEAVERS if name.endswith("driver")]
LEAVERS["wrapper of Django"] = wrapper_of_django

STATE = {
    "settings": """
        select array_agg(name || '=' || setting order by name) from pg_settings
        where source not in ('default', 'override', 'configuration file', 'command line', 'environment variable')""",
    "project": "select coalesce(current_setting('shop.tenant', true), '')",
    "users": "select array[session_user, current_user, current_setting('role')]::text[]",
    "locks": "select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'",
    "temporary tables": "select count(*) from pg_class where relpersistence = 't' and pg_table_is_visible(oid)",
    "prepared": "select array(select name from pg_prepared_statements where from_sql)",
    "listens": "select array(select pg_listening_channels())",
    "cursors": "select count(*) from pg_cursors where name = 'leaver'",
    "rows": "select count(*) from worker_row",
}


def state() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with connection.cursor() as cursor:
        for name, sql in STATE.items():
            cursor.execute(sql)
            [found[name]] = cursor.fetchone()
    session = connection.connection
    return {
        **found,
        "driver": {name: repr(getattr(session, name)) for name in settable(session)},
        "handlers": [len(session._notice_handlers), len(session._notify_handlers)],
        "Django": [len(connection.execute_wrappers), connection.force_debug_cursor],
    }


def settable(session: psycopg.Connection[Any]) -> set[str]:
    """Whatever a task may set in the driver's connection, by psycopg's own names."""
    properties = {name for name in dir(type(session)) if getattr(getattr(type(session), name), "fset", None)}
    return properties | {name for name in vars(session) if not name.startswith("_")} - {"pgconn", "lock", "wait"}


def backend() -> int:
    return int(connection.connection.info.backend_pid)


@task
def look() -> list[Any]:
    """The state of the session, and which one it is."""
    return [state(), backend()]


@task
async def look_on() -> list[Any]:
    return await sync_to_async(look.func)()


@task
def leave(how: str) -> None:
    LEAVERS[how]()


@task
async def leave_on(how: str) -> None:
    await sync_to_async(LEAVERS[how])()
