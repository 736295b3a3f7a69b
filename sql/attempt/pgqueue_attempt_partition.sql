create or replace function pgqueue_attempt_partition(p_day date) returns boolean
language plpgsql
set search_path from current
set timezone = 'UTC'
set datestyle = 'ISO'
as $$
-- Makes the partition pgqueue_attempt_YYYYMMDD of the history for one day (UTC), and moves the rows of that day from
-- pgqueue_attempt_default into it.  Returns true when it was made, and false when it was there already.  A table of this
-- name that was detached is an error.
-- The rows move before this takes a lock that others wait for; the few that came meanwhile move after that.  From then
-- on it holds, until the end of the transaction, ACCESS EXCLUSIVE on pgqueue_attempt_default and SHARE UPDATE
-- EXCLUSIVE on pgqueue_attempt: attempts of days with a partition end without waiting, and so do readers that name
-- such days.  Around today it first takes SHARE ROW EXCLUSIVE on pgqueue_attempt: an attempt that ends at this moment
-- waits there, before its row is routed to a partition.  If it waited for pgqueue_attempt_default instead, that table
-- would refuse its row, because the partition for it exists by then.
-- The queue has dynamic SQL only for partitions, those of pgqueue_step too, because a table name cannot be a parameter.
declare
    v_name text := 'pgqueue_attempt_' || to_char(p_day, 'YYYYMMDD');
    v_move text;
begin
    -- Not to_regclass: the search_path may lead to another queue as well.
    if exists (
        select from pg_class c
        where c.relname = v_name
          and c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'pgqueue_attempt'::regclass)
    ) then
        if not exists (
            select from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'pgqueue_attempt'::regclass and c.relname = v_name
        ) then
            raise exception '% is there, and no partition of pgqueue_attempt', v_name
                using errcode = 'duplicate_table', hint = 'Somebody has detached it: rename it, or drop it.';
        end if;
        return false;
    end if;
    execute format('create table %I (like pgqueue_attempt including defaults including constraints)', v_name);
    execute format('alter table %I replica identity full', v_name);  -- people delete rows by hand
    v_move := format(
        'with moved as (delete from pgqueue_attempt_default where finished_at >= %L and finished_at < %L returning *)
         insert into %I select * from moved',
        p_day::timestamptz, (p_day + 1)::timestamptz, v_name);
    execute v_move;
    if p_day between pgqueue_clock()::date - 1 and pgqueue_clock()::date + 1 then
        lock table only pgqueue_attempt in share row exclusive mode;
    end if;
    lock table pgqueue_attempt_default in access exclusive mode;
    execute v_move;
    execute format(
        'alter table pgqueue_attempt attach partition %I for values from (%L) to (%L)',
        v_name, p_day::timestamptz, (p_day + 1)::timestamptz);
    return true;
end
$$;
