"""Tasks that change their session with the server, and one that looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connection
from psycopg import IsolationLevel

from django_pgqueue.tasks import task

if TYPE_CHECKING:
    from collections.abc import Callable

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


def and_close() -> None:
    """Which gives it back to Django's pool, where there is one."""
    in_sql("set statement_timeout = '9s'")()
    connection.close()


LEAVERS: dict[str, Callable[[], None]] = {
    **{name: in_sql(statement) for name, statement in SQL.items()},
    "below Django": below_django,
    "of the driver": of_the_driver,
    "and closes": and_close,
}

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
    return {**found, "driver": [repr(session.isolation_level), session.read_only, session.deferrable]}


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
