-- For a queue whose schema was renamed (alter schema ... rename to ...): its functions still search the schema of the
-- old name.  They fail or, where another queue has that name now, write into its tables.
-- Or whose tables were moved without its functions (alter table ... set schema ...).
--   psql -f sql/repin.sql
-- If the schema of the tables lacks the functions, moves them there from the one schema that has them without tables.
-- Then it pins each function of that queue to the schema that contains it.  The queue is the one that the search_path
-- finds.  Run it as the owner of the queue; you may repeat it.  manage.py check --database and qdoctor report when it is
-- needed.
do $$
declare
    v_function record;
    v_schema regnamespace := (select c.relnamespace from pg_class c where c.oid = 'pgqueue_message'::regclass);
    v_owner regrole := (select c.relowner from pg_class c where c.oid = 'pgqueue_message'::regclass);
    -- A function of another role would be called with the rights of the owner.  Superusers have them anyway.
    v_trusted oid[] := array(select r.oid from pg_roles r where r.oid = v_owner or r.rolsuper);
    v_from regnamespace[];
begin
    if not exists (select from pg_proc p where p.pronamespace = v_schema and p.proname = 'pgqueue_message_create') then
        v_from := array(
            select p.pronamespace::regnamespace
            from pg_proc p
            where p.proname = 'pgqueue_message_create' and p.proowner = any (v_trusted)
              and not exists (
                select from pg_class t where t.relnamespace = p.pronamespace and t.relname = 'pgqueue_message')
            group by 1
            order by p.pronamespace::regnamespace::text
        );
        if cardinality(v_from) = 0 then
            raise exception 'the queue in the schema % lacks its functions, and no other schema has them of its owner',
                v_schema
                using hint = format('Those of other roles are not moved. If they are the right ones: alter function ... '
                    'owner to %s. If there are none, restore them from sql/ of their release.', v_owner);
        elsif cardinality(v_from) > 1 then
            raise exception 'the queue in the schema % lacks its functions, and several schemas have functions without '
                'tables: %', v_schema, array_to_string(v_from, ', ')
                using hint = 'Only you know which are its own. In each of the others, rename the function '
                    'pgqueue_message_create until this is done. To drop what nobody needs: psql -f sql/uninstall.sql, '
                    'with its schema alone in the search_path.';
        end if;
    end if;
    for v_function in
        select p.oid::regprocedure as signature
        from pg_proc p
        where p.pronamespace = any (v_from) and p.proname like 'pgqueue\_%' and p.prokind = 'f'
          and p.proowner = any (v_trusted)
    loop
        execute format('alter function %s set schema %s', v_function.signature, v_schema);
    end loop;
    for v_function in
        select p.oid::regprocedure as signature, n.nspname as schema, bool_or(s like '%pg_temp%') as with_temp
        from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace
        cross join unnest(p.proconfig) as s
        where p.pronamespace = v_schema
          and p.proname like 'pgqueue\_%' and p.prokind = 'f' and s like 'search_path=%'
        group by p.oid, n.nspname
    loop
        execute format('alter function %s set search_path = %I%s', v_function.signature, v_function.schema,
                       case when v_function.with_temp then ', pg_temp' else '' end);
    end loop;
end
$$;
