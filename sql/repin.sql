-- For a queue whose schema was renamed (alter schema ... rename to ...): its functions still search the schema of the
-- old name.  They fail or, where another queue has that name now, write into its tables.
-- Or whose tables were moved without its functions (alter table ... set schema ...).
--   psql -f sql/repin.sql
-- Moves the functions to the tables of the queue that the search_path finds, if no function is there and the schema of the
-- functions has no tables.  Then it pins each function of that queue to the schema that contains it.  Run it as the owner
-- of the queue; you may repeat it.  manage.py check --database and qdoctor report when it is needed.
do $$
declare
    v_function record;
    v_schema regnamespace := (select c.relnamespace from pg_class c where c.oid = 'pgqueue_message'::regclass);
begin
    for v_function in
        select p.oid::regprocedure as signature
        from pg_proc p
        where p.proname like 'pgqueue\_%' and p.prokind = 'f'
          and not exists (select from pg_proc o where o.pronamespace = v_schema and o.proname like 'pgqueue\_%')
          and not exists (
            select from pg_class t where t.relnamespace = p.pronamespace and t.relname = 'pgqueue_message')
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
