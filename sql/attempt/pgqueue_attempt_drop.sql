create or replace function pgqueue_attempt_drop(p_day date, p_fingerprint text) returns boolean
language plpgsql
set search_path from current
set timezone = 'UTC'
set lock_timeout = '200ms'
as $$
-- Drops the history of one past day (UTC) if it is still what was copied: p_fingerprint is the fingerprint of the copy,
-- as pgqueue_attempt_fingerprint returns it.  Returns true when the day was dropped, and false when nothing was done,
-- because the day has no partition or its content differs.
-- Reads the day before it takes a lock: ACCESS EXCLUSIVE on pgqueue_attempt, for an instant at the end.  It recognizes
-- rows that were written in between by their transaction, which was not over at the beginning.  When the lock cannot
-- be had within lock_timeout, the function raises an error: try again later.
-- Call pgqueue_child_keep in transactions of its own before, until it returns 0: a session that waits for the lock may
-- have a snapshot from before this call, and finds the ends of children neither in the day nor where they are kept.
declare
    v_name text := 'pgqueue_attempt_' || to_char(p_day, 'YYYYMMDD');
    v_partition regclass;
    v_running bigint := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
begin
    select i.inhrelid into v_partition from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'pgqueue_attempt'::regclass and c.relname = v_name;
    if v_partition is null or p_day >= pgqueue_clock()::date
        or pgqueue_attempt_fingerprint(p_day) is distinct from p_fingerprint then
        return false;
    end if;
    while pgqueue_child_keep(p_day) > 0 loop  -- without the lock, because it may look at many waiting messages
    end loop;
    lock table pgqueue_attempt in access exclusive mode;
    if exists (
        select from pgqueue_attempt a
        where a.finished_at >= p_day and a.finished_at < p_day + 1 and a.transaction_id >= v_running
    ) then
        return false;
    end if;
    execute format('drop table %s', v_partition);
    return true;
end
$$;
