-- For a queue whose schema was renamed (alter schema ... rename to ...): its functions still search the schema of the
-- old name.  They fail or, where another queue has that name now, write into its tables.
--   psql -f sql/repin.sql
-- Pins each function of the queue that the search_path finds to the schema that contains it.  Run it as the owner of
-- the queue; you may repeat it.  manage.py check --database and qdoctor report when it is needed.
do $$
declare
    v_function record;
begin
    for v_function in
        select p.oid::regprocedure as signature, n.nspname as schema, bool_or(s like '%pg_temp%') as with_temp
        from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace
        cross join unnest(p.proconfig) as s
        where p.pronamespace = (select c.relnamespace from pg_class c where c.oid = 'pgqueue_message'::regclass)
          and p.proname like 'pgqueue\_%' and p.prokind = 'f' and s like 'search_path=%'
        group by p.oid, n.nspname
    loop
        execute format('alter function %s set search_path = %I%s', v_function.signature, v_function.schema,
                       case when v_function.with_temp then ', pg_temp' else '' end);
    end loop;
end
$$;
