create or replace function pgqueue_step_partition(p_day date) returns boolean
language plpgsql
set search_path from current
set timezone = 'UTC'
set datestyle = 'ISO'
as $$
-- Makes the partition pgqueue_step_YYYYMMDD for one day (UTC), and moves the rows of that day from pgqueue_step_default
-- into it.  Returns true when it was made, and false when it was there already.  A table of this name that was detached
-- is an error.
-- Who records a step at this moment waits until the end of the transaction.  It is short, because days that come have
-- no rows yet.  Dynamic SQL, because a table name cannot be a parameter.
declare
    v_name text := 'pgqueue_step_' || to_char(p_day, 'YYYYMMDD');
begin
    if p_day is null or p_day not between '0001-01-02' and '9999-12-30' then
        raise exception 'p_day is %', p_day
            using errcode = 'invalid_parameter_value', hint = 'It must be a day of the years 1 to 9999.';
    end if;
    if exists (
        select from pg_class c
        where c.relname = v_name
          and c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'pgqueue_step'::regclass)
    ) then
        if not exists (
            select from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'pgqueue_step'::regclass and c.relname = v_name
        ) then
            raise exception '% is there, and no partition of pgqueue_step', v_name
                using errcode = 'duplicate_table', hint = 'Somebody has detached it: rename it, or drop it.';
        end if;
        return false;
    end if;
    lock table only pgqueue_step in share row exclusive mode;
    lock table pgqueue_step_default in access exclusive mode;
    execute format('create table %I (like pgqueue_step including defaults including constraints)', v_name);
    execute format('alter table %I replica identity full', v_name);  -- people delete rows by hand
    execute format(
        'with moved as (delete from pgqueue_step_default where recorded_at >= %L and recorded_at < %L returning *)
         insert into %I select * from moved',
        p_day::timestamptz, (p_day + 1)::timestamptz, v_name);
    execute format(
        'alter table pgqueue_step attach partition %I for values from (%L) to (%L)',
        v_name, p_day::timestamptz, (p_day + 1)::timestamptz);
    return true;
end
$$;
