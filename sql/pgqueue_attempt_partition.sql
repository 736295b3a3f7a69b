create or replace function pgqueue_attempt_partition(p_day date) returns boolean
language plpgsql
set search_path from current
set timezone = 'UTC'
as $$
-- Makes the partition pgqueue_attempt_YYYYMMDD of the history for one day (UTC), with the rows of that day that went
-- to pgqueue_attempt_default before there was one.  True: made.  False: it was there.
-- Takes ACCESS EXCLUSIVE on pgqueue_attempt_default and SHARE UPDATE EXCLUSIVE on pgqueue_attempt until the end of the
-- transaction: attempts of days with a partition end without waiting, and so do readers that name such days.
-- The only dynamic SQL of the queue, with pgqueue_attempt_maintain and pgqueue_attempt_drop: the name of a table can not
-- be a parameter.
declare
    v_name text := 'pgqueue_attempt_' || to_char(p_day, 'YYYYMMDD');
begin
    if to_regclass(quote_ident(v_name)) is not null then
        return false;
    end if;
    execute format('create table %I (like pgqueue_attempt including defaults including constraints)', v_name);
    lock table pgqueue_attempt_default in access exclusive mode;
    execute format(
        'with moved as (delete from pgqueue_attempt_default where finished_at >= %L and finished_at < %L returning *)
         insert into %I select * from moved',
        p_day::timestamptz, (p_day + 1)::timestamptz, v_name);
    execute format(
        'alter table pgqueue_attempt attach partition %I for values from (%L) to (%L)',
        v_name, p_day::timestamptz, (p_day + 1)::timestamptz);
    return true;
end
$$;
