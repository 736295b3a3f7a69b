-- Reverts roles.sql in this database: functions run with the rights of their caller again, and all roles may call them.
-- Run it before uninstall.sql or after it, if at all; before it where another schema of the database has a queue.
--   psql -f sql/roles_drop.sql
-- You may repeat it.  Roles belong to the whole server: a role that other objects need stays, and a notice reports it.
-- Two things stay as well: only the owner may make objects in the schema, and the functions keep their search_path.
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
begin;
-- After uninstall.sql, only the schema still has rights of the roles.
do $$
declare
    v_elsewhere text;
begin
    select string_agg(c.relnamespace::regnamespace::text, ', ') into v_elsewhere
    from pg_class c where c.relname = 'pgqueue_message' and c.relkind = 'r';
    if to_regclass('pgqueue_message') is null and v_elsewhere is not null then
        raise exception 'The search_path (%) finds no queue, and there is one in the schema %.',
            current_setting('search_path'), v_elsewhere
            using hint = 'To revert the roles of that queue, put its schema first in the search_path: PGOPTIONS="-c '
                'search_path=..." psql -f sql/roles_drop.sql';
    end if;
end
$$;
select n.oid as schema_oid
from pg_namespace n
left join pg_class c on c.oid = to_regclass('pgqueue_message')
where n.oid = c.relnamespace or c.oid is null and n.nspname = current_schema() \gset
select string_agg(r.rolname, ', ') as roles, count(*) > 0 as there
from pg_roles r
where r.rolname in ('pgqueue_producer', 'pgqueue_consumer', 'pgqueue_reader', 'pgqueue_admin') \gset

select format('alter function %s security invoker', p.oid::regprocedure)
from pg_proc p where p.pronamespace = :schema_oid and p.proname like 'pgqueue\_%' and p.prosecdef \gexec
select format('grant execute on function %s to public', p.oid::regprocedure)
from pg_proc p where p.pronamespace = :schema_oid and p.proname like 'pgqueue\_%' \gexec
\if :there
    select format('revoke all on function %s from %s', p.oid::regprocedure, :'roles')
    from pg_proc p where p.pronamespace = :schema_oid and p.proname like 'pgqueue\_%' \gexec
    select format('revoke all on %s %s from %s', case c.relkind when 'S' then 'sequence' else 'table' end,
                  c.oid::regclass, :'roles')
    from pg_class c
    where c.relnamespace = :schema_oid and c.relname like 'pgqueue\_%' and c.relkind in ('r', 'p', 'S') \gexec
    -- After uninstall.sql no queue says which schema was its own.
    select format('revoke all on schema %s from %s', n.oid::regnamespace, :'roles')
    from pg_namespace n
    where n.oid = :schema_oid or to_regclass('pgqueue_message') is null and exists (
        select from aclexplode(n.nspacl) a join pg_roles r on r.oid = a.grantee
        where r.rolname = any (string_to_array(:'roles', ', '))) \gexec
\endif
commit;

do $$
declare
    v_role text;
begin
    for v_role in
        select r.rolname from pg_roles r
        where r.rolname in ('pgqueue_producer', 'pgqueue_consumer', 'pgqueue_reader', 'pgqueue_admin')
        order by r.rolname
    loop
        begin
            execute format('drop role %I', v_role);
        exception
            when dependent_objects_still_exist or insufficient_privilege then
                raise notice 'the role % was not dropped: %', v_role, sqlerrm;
        end;
    end loop;
end
$$;
