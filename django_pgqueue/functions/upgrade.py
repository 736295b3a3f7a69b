"""The migrations of the queue: what is installed already is not made again, and no upgrade keeps others waiting."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import DatabaseError, migrations, router

from django_pgqueue.functions import installed
from django_pgqueue.functions.replace_function import ReplaceFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

FIRST_WAIT_MS, LAST_WAIT_MS = 20, 80
"""The upgrade waits this long for its locks, and everybody else waits behind it.  Short transactions end in less.  Each
wait is twice as long as the one before.  The setting pgqueue.upgrade_lock_ms is another last one."""
PATIENCE_SECONDS = 60
IN_FLIGHT_SECONDS = 1.0
"""A call of a function has its locks within this time after it has begun."""

# Limits of the login are for requests.  An index waits for all transactions that are older, and harms nobody meanwhile.
WITHOUT_LIMITS = """do $$
begin
    perform set_config('pgqueue.limits', (
        select jsonb_object_agg(s.name, s.setting)::text from pg_settings s
        where s.name in ('statement_timeout', 'transaction_timeout', 'lock_timeout')
    ), false);
    perform set_config(l.key, '0', false) from jsonb_each_text(current_setting('pgqueue.limits')::jsonb) as l;
end
$$;"""
# Without the setting in another session of a pooler, which has its own limits.
WITH_LIMITS = """do $$
begin
    perform set_config(l.key, l.value, false) from jsonb_each_text(current_setting('pgqueue.limits', true)::jsonb) as l;
end
$$;"""

# Replicas that start together may all run the migrations.  One that waits must not have a transaction open meanwhile:
# the one that upgrades builds indexes, and waits for the end of every transaction that is older than an index.
BEGIN_ALONE = """do $$
declare
    v_number bigint := (
        select hashtextextended('pgqueue upgrade ' || n.oid, 0) from pg_namespace n where n.nspname = current_schema()
    );
    v_patience interval := '600 s';
    v_begun timestamptz := clock_timestamp();
    v_other record;
begin
    while not pg_try_advisory_lock(v_number) loop
        if clock_timestamp() > v_begun + v_patience then
            select a.pid, a.state, a.state_change into v_other
            from pg_locks l join pg_stat_activity a on a.pid = l.pid
            where l.locktype = 'advisory' and l.granted and l.objsubid = 1
              and l.database = (select d.oid from pg_database d where d.datname = current_database())
              and l.classid::bigint << 32 | l.objid::bigint = v_number;
            raise exception 'session % (% since %) upgrades this queue, and has not ended within %',
                v_other.pid, v_other.state, v_other.state_change, v_patience
                using errcode = 'lock_not_available',
                      hint = format('Nothing was changed. Run the upgrade again when that session has ended. If it '
                          'does something else, it is the connection of a pooler in transaction mode: end it by select '
                          'pg_terminate_backend(%s), and do not upgrade through that pooler.', v_other.pid);
        end if;
        commit;
        perform pg_sleep(0.2);
    end loop;
end
$$;"""
END_ALONE = """do $$
begin
    perform pg_advisory_unlock((
        select hashtextextended('pgqueue upgrade ' || n.oid, 0) from pg_namespace n where n.nspname = current_schema()
    ));
end
$$;"""

# A function keeps the search_path with which it was made.  "$user" is another schema for each login that calls it.
OWN_PATH = """do $$
begin
    if current_setting('search_path') like '%$user%' then
        perform set_config('search_path', (
            select string_agg(quote_ident(s.name), ', ' order by s.place)
            from unnest(current_schemas(false)) with ordinality as s (name, place)
        ), true);
    end if;
end
$$;"""

LOCK = """do $$
declare
    v_lock_timeout text := current_setting('lock_timeout');
    v_last_ms text := coalesce(nullif(current_setting('pgqueue.upgrade_lock_ms', true), ''), '{last_ms}');
    v_lock_ms integer := {first_ms};
    v_give_up_at timestamptz := clock_timestamp() + interval '{patience_seconds} s';
    v_others text;
begin
    if v_last_ms !~ '^[1-9][0-9]{{0,5}}$' then
        raise exception 'pgqueue.upgrade_lock_ms is %', quote_literal(v_last_ms)
            using hint = 'Nothing was changed. Set it to a number of milliseconds, such as 1000.';
    end if;
    -- A lock that was not got soon is not waited for: statements of others would queue up behind.
    loop
        begin
            perform set_config('lock_timeout', least(v_lock_ms, v_last_ms::integer) || 'ms', true);
            lock table {first} in access exclusive mode;
            -- Who has used that table goes on with another one: a long wait with a lock in hand would be a deadlock.
            perform set_config('lock_timeout', '{first_ms}ms', true);
            {others}
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
                          hint = format('Nothing was changed. Wait for the session or end it, and run the upgrade '
                              'again. If there is always another one, let it wait for longer than their transactions '
                              'take, instead of %s ms: PGOPTIONS="-c pgqueue.upgrade_lock_ms=1000"', v_last_ms);
            end if;
            perform pg_sleep(0.1 + random() / 5);
            v_lock_ms := least(2 * v_lock_ms, v_last_ms::integer);
        end;
    end loop;
    perform set_config('lock_timeout', v_lock_timeout, true);
end
$$;"""

# A replaced function runs with the rights of its caller again, and one that was made anew may be called by everybody:
# from the upgrade until sql/roles.sql is run again, producers could not enqueue, or strangers could.  Both also search
# the temporary tables of their session first again: where a function with the rights of the owner calls them, a login
# could have its own view read with these rights.
REMEMBER_RIGHTS = """do $$
begin
    perform set_config('pgqueue.rights', coalesce((
        select jsonb_agg(jsonb_build_object('id', p.oid::bigint, 'name', p.proname, 'as_owner', p.prosecdef,
            'is_safe', p.proconfig::text like '%pg\\_temp%', 'roles', (
            select jsonb_agg(a.grantee::bigint) from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
        )))
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = current_schema() and p.proname like 'pgqueue\\_%' and p.prokind = 'f'
    ), '[]')::text, true);
end
$$;"""
RESTORE_RIGHTS = """do $$
declare
    v_function record;
    v_role oid;
begin
    for v_function in
        with before as (
            select b.* from jsonb_to_recordset(current_setting('pgqueue.rights')::jsonb)
                as b (id bigint, name text, as_owner boolean, roles jsonb)
        )
        select p.oid::regprocedure as signature, n.nspname as schema, b.as_owner, b.roles,
               b.id = p.oid::bigint as is_same
        from before b
        join pg_proc p on p.proname = b.name
        join pg_namespace n on n.oid = p.pronamespace and n.nspname = current_schema()
        where case when b.id = p.oid::bigint then b.as_owner and not p.prosecdef
                   else not exists (select from before o where o.id = p.oid::bigint)
                        and not exists (select from pg_proc g where g.oid::bigint = b.id) end
    loop
        if v_function.as_owner then
            execute format('alter function %s security definer set search_path = %I, pg_temp',
                           v_function.signature, v_function.schema);
        end if;
        if not v_function.is_same then
            execute format('revoke all on function %s from public', v_function.signature);
            for v_role in select r::oid from jsonb_array_elements_text(v_function.roles) as r loop
                execute format('grant execute on function %s to %s', v_function.signature,
                               case v_role when 0 then 'public' else v_role::regrole::text end);
            end loop;
        end if;
    end loop;
    if jsonb_path_exists(current_setting('pgqueue.rights')::jsonb, '$[*] ? (@.is_safe == true)') then
        for v_function in
            select p.oid::regprocedure as signature, n.nspname as schema
            from pg_proc p join pg_namespace n on n.oid = p.pronamespace
            where n.nspname = current_schema() and p.proname like 'pgqueue\\_%' and p.prokind = 'f'
              and p.proconfig::text like '%search\\_path=%' and p.proconfig::text not like '%pg\\_temp%'
        loop
            execute format('alter function %s set search_path = %I, pg_temp', v_function.signature, v_function.schema);
        end loop;
    end if;
    for v_function in
        select p.oid::regprocedure as signature
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = current_schema() and p.proname like 'pgqueue\\_%' and p.prokind = 'f'
          and p.proconfig::text like '%$user%'
    loop
        execute format('alter function %s set search_path from current', v_function.signature);
    end loop;
end
$$;"""


def lock(tables: Sequence[str]) -> str:
    """Returns the statement that locks ``tables`` until the end of the transaction, without a queue behind it."""
    names = ", ".join(f"'{table}'" for table in tables)
    first, *others = tables
    return LOCK.format(
        first=first,
        others=f"lock table {', '.join(others)} in access exclusive mode;" if others else "",
        names=names,
        first_ms=FIRST_WAIT_MS,
        last_ms=LAST_WAIT_MS,
        patience_seconds=PATIENCE_SECONDS,
    )


def at_once(tables: Sequence[str], statements: Iterable[str]) -> list[str]:
    """Returns what is sent to upgrade a queue by ``statements``."""
    return [OWN_PATH, *([lock(tables)] if tables else []), REMEMBER_RIGHTS, *statements, RESTORE_RIGHTS]


DROP_UNFINISHED = """select format('drop index concurrently %s', i.indexrelid::regclass)
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace
where c.relname = '{name}' and n.nspname = current_schema() and not i.indisvalid"""


def index_of(statement: str) -> str | None:
    """Returns the name of the index that the statement builds while others work, if it does that."""
    found = re.match(r"create (?:unique )?index concurrently if not exists (\w+)", statement)
    return None if found is None else found[1]


def drop_unfinished(name: str) -> str:
    """Returns the query for the statement that drops the index, if it was not finished: ``if not exists`` would take it
    for the index.
    """
    return DROP_UNFINISHED.format(name=name)


class OfPostgreSQL(migrations.Migration):
    """Migration that makes nothing in a database of another kind, as those of django.contrib.postgres.

    Without a router Django runs it in all databases of a project, and pytest-django does so before the first test.
    """

    def apply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if _has_no_queue(schema_editor):
            return self.mutate_state(project_state, preserve=False)
        return super().apply(project_state, schema_editor, collect_sql)

    def unapply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if _has_no_queue(schema_editor):
            return project_state
        return super().unapply(project_state, schema_editor, collect_sql)


def _has_no_queue(schema_editor: Any) -> bool:
    return schema_editor.connection.vendor != "postgresql" and not schema_editor.collect_sql


class Install(OfPostgreSQL):
    """Migration that makes the queue of a release, unless there is one: then it only takes note of it."""

    def apply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if is_meant(self, schema_editor, collect_sql=collect_sql):
            connection = schema_editor.connection
            if installed.require_whole(connection, connection.alias) is not None:
                return self.mutate_state(project_state, preserve=False)
        return super().apply(project_state, schema_editor, collect_sql)


class Upgrade(OfPostgreSQL):
    """Migration that leads from the release ``since`` to the next one, unless the queue has been upgraded already.

    All its statements go to the server at once, after it has locked the tables.  Python between them would make the
    time longer for which nobody can enqueue.
    """

    atomic = False  # it has transactions of its own, and what was done without being recorded is not done again
    since: ClassVar[str]
    locks: ClassVar[Sequence[str]] = ()
    """The tables that the operations alter, or on which they make triggers or indexes.  The first one is what long
    transactions begin with: no other is waited for as long."""
    afterwards: ClassVar[Sequence[str]] = ()
    """What takes long and keeps nobody waiting, each outside of a transaction, and without harm when it is repeated:
    create index concurrently if not exists …, alter table … validate constraint …"""
    before_the_way_back: ClassVar[Sequence[str]] = ()
    """What writes many rows: after the functions have changed and before the tables are locked.  It may be repeated."""
    after_the_way_back: ClassVar[Sequence[str]] = ()
    """What reads whole tables, as in ``afterwards``."""

    def apply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if not is_meant(self, schema_editor, collect_sql=collect_sql):
            state = super().apply(project_state, schema_editor, collect_sql)
            if schema_editor.collect_sql:
                self._do_afterwards(schema_editor)
            return state
        with alone(schema_editor.connection):
            self._upgrade(schema_editor)
        return self.mutate_state(project_state, preserve=False)

    def _upgrade(self, schema_editor: Any) -> None:
        found = installed.installed_here(schema_editor.connection)
        if found is None and (elsewhere := installed.installed_queue(schema_editor.connection)) is not None:
            raise installed.misplaced(elsewhere)
        is_due = found is None or not found.is_after(self.since)
        if is_due:
            forwards = [self._collected(schema_editor, one.database_forwards) for one in self.operations]
            self._send(schema_editor, chain(*forwards))
        if is_due or (found is not None and found.version == installed.version_after(self.since)):
            self._do_afterwards(schema_editor)

    def unapply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if not is_meant(self, schema_editor, collect_sql=collect_sql):
            shown = schema_editor.collect_sql
            self._run(schema_editor, self.before_the_way_back if shown else ())
            state = super().unapply(project_state, schema_editor, collect_sql)
            self._run(schema_editor, self.after_the_way_back if shown else ())
            return state
        with alone(schema_editor.connection):
            self._downgrade(schema_editor)
        return project_state

    def _downgrade(self, schema_editor: Any) -> None:
        found = installed.installed_here(schema_editor.connection)
        is_due = found is not None and found.is_after(self.since)
        if is_due:
            self._send_backwards(schema_editor)
        if is_due or (found is not None and found.version == self.since):
            self._run(schema_editor, self.after_the_way_back)

    def _send_backwards(self, schema_editor: Any) -> None:
        backwards = [(one, self._collected(schema_editor, one.database_backwards)) for one in reversed(self.operations)]
        # The functions first, in a transaction of their own: a call of a newer function that waits for the lock would
        # go on after the commit, and miss the columns that are gone.  They are made once more after that, because
        # those that return rows of a table have to be made for the table as it is.  Functions that the release before
        # does not have stay until then: a call that waits for this lock may be about to call them.
        functions = [statements for operation, statements in backwards if _is_of_both_releases(operation)]
        if functions:
            self._send(schema_editor, chain(*functions))
            time.sleep(IN_FLIGHT_SECONDS)
        self._run(schema_editor, self.before_the_way_back)
        self._send(schema_editor, chain(*(statements for _, statements in backwards)))

    def _run(self, schema_editor: Any, statements: Iterable[str]) -> None:
        for statement in statements:
            schema_editor.execute(statement, params=None)

    def _do_afterwards(self, schema_editor: Any) -> None:
        for statement in self.afterwards:
            if not schema_editor.collect_sql and (name := index_of(statement)) is not None:
                with schema_editor.connection.cursor() as cursor:
                    cursor.execute(drop_unfinished(name))
                    unfinished = [drop for (drop,) in cursor.fetchall()]
                for drop in unfinished:
                    schema_editor.execute(drop, params=None)
            schema_editor.execute(statement, params=None)

    def _collected(self, schema_editor: Any, run: Callable[..., None]) -> list[str]:
        """Returns the statements of an operation of SQL, which needs no state."""
        schema_editor.collect_sql, schema_editor.collected_sql = True, []
        try:
            run(self.app_label, schema_editor, None, None)
        finally:
            schema_editor.collect_sql = False
        return list(schema_editor.collected_sql)

    def _send(self, schema_editor: Any, statements: Iterable[str]) -> None:
        # One query is one transaction.
        schema_editor.execute("\n".join(at_once(self.locks, statements)), params=None)


@contextmanager
def alone(connection: Any) -> Iterator[None]:
    """Keeps other sessions from upgrading the same queue meanwhile, for as long as it takes."""
    with without_limits(connection):
        with connection.cursor() as cursor:
            cursor.execute(BEGIN_ALONE)
        try:
            yield
        finally:
            with suppress(DatabaseError), connection.cursor() as cursor:  # without a session there is no lock either
                cursor.execute(END_ALONE)


@contextmanager
def without_limits(connection: Any) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(WITHOUT_LIMITS)
    try:
        yield
    finally:
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute(WITH_LIMITS)


def _is_of_both_releases(operation: Any) -> bool:
    return isinstance(operation, ReplaceFunction) and not operation.is_new and operation.name != "pgqueue_version"


def is_meant(migration: migrations.Migration, schema_editor: Any, *, collect_sql: bool) -> bool:
    """Returns whether the statements are for this database, and are run instead of shown."""
    connection = schema_editor.connection
    return (
        not (collect_sql or schema_editor.collect_sql)
        and connection.vendor == "postgresql"
        and router.allow_migrate(connection.alias, migration.app_label)
    )
