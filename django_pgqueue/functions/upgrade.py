"""The migrations of the queue: what is installed already is not made again, and no upgrade keeps others waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.db import migrations, router

from django_pgqueue.functions import installed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOCK_MS = 20
"""The upgrade waits this long for its locks, and everybody else waits behind it.  Short transactions end in less."""
PATIENCE_SECONDS = 60

LOCK = """do $$
declare
    v_lock_timeout text := current_setting('lock_timeout');
    v_give_up_at timestamptz := clock_timestamp() + interval '{patience_seconds} s';
    v_others text;
begin
    -- A lock that was not got at once is not waited for: statements of others would queue up behind.
    perform set_config('lock_timeout', '{lock_ms}ms', true);
    loop
        begin
            lock table {tables} in access exclusive mode;
            exit;
        exception when lock_not_available then
            if clock_timestamp() > v_give_up_at then
                select string_agg(format('session %s (%s since %s)', o.pid, o.state, o.xact_start), ', ') into v_others
                from (
                    select distinct a.pid, a.state, a.xact_start
                    from pg_locks l join pg_stat_activity a on a.pid = l.pid
                    where l.relation = any (array[{names}]::regclass[]) and l.granted
                      and a.pid <> pg_backend_pid()
                ) as o;
                raise exception 'the queue was in use for more than {patience_seconds} seconds, by %', v_others
                    using errcode = 'lock_not_available',
                          hint = 'Nothing was changed. Wait for the session or end it, and run the upgrade again.';
            end if;
            perform pg_sleep(0.1 + random() / 5);
        end;
    end loop;
    perform set_config('lock_timeout', v_lock_timeout, true);
end
$$;"""


def lock(tables: Sequence[str]) -> str:
    """Returns the statement that locks ``tables`` until the end of the transaction, without a queue behind it."""
    names = ", ".join(f"'{table}'" for table in tables)
    return LOCK.format(tables=", ".join(tables), names=names, lock_ms=LOCK_MS, patience_seconds=PATIENCE_SECONDS)


class Install(migrations.Migration):
    """Migration that makes the queue of a release, unless there is one: then it only takes note of it."""

    def apply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if is_meant(self, schema_editor, collect_sql=collect_sql):
            connection = schema_editor.connection
            if installed.require_whole(connection, connection.alias) is not None:
                return self.mutate_state(project_state, preserve=False)
        return super().apply(project_state, schema_editor, collect_sql)


class Upgrade(migrations.Migration):
    """Migration that leads from the release ``since`` to the next one, unless the queue has been upgraded already.

    All its statements go to the server at once, after it has locked the tables.  Python between them would make the
    time longer for which nobody can enqueue.
    """

    since: ClassVar[str]
    locks: ClassVar[Sequence[str]] = ()
    """The tables that the operations alter, or on which they make triggers or indexes: the most used one last."""

    def apply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if not is_meant(self, schema_editor, collect_sql=collect_sql):
            return super().apply(project_state, schema_editor, collect_sql)
        found = installed.installed_here(schema_editor.connection)
        if found is not None and found.is_after(self.since):
            return self.mutate_state(project_state, preserve=False)
        return self._at_once(schema_editor, lambda: super(Upgrade, self).apply(project_state, schema_editor))

    def unapply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if not is_meant(self, schema_editor, collect_sql=collect_sql):
            return super().unapply(project_state, schema_editor, collect_sql)
        found = installed.installed_here(schema_editor.connection)
        if found is None or not found.is_after(self.since):
            return project_state
        return self._at_once(schema_editor, lambda: super(Upgrade, self).unapply(project_state, schema_editor))

    def _at_once(self, schema_editor: Any, do: Callable[[], Any]) -> Any:
        schema_editor.collect_sql, schema_editor.collected_sql = True, []
        try:
            state = do()
        finally:
            schema_editor.collect_sql = False
        statements = [*([lock(self.locks)] if self.locks else []), *schema_editor.collected_sql]
        schema_editor.execute("\n".join(statements), params=None)
        return state


def is_meant(migration: migrations.Migration, schema_editor: Any, *, collect_sql: bool) -> bool:
    """Returns whether the statements are for this database, and are run instead of shown."""
    connection = schema_editor.connection
    return (
        not (collect_sql or schema_editor.collect_sql)
        and connection.vendor == "postgresql"
        and router.allow_migrate(connection.alias, migration.app_label)
    )
