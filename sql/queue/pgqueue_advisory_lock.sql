create or replace function pgqueue_advisory_lock(
    p_what text,
    p_shared boolean default false,
    p_wait_ms integer default 0
) returns boolean
language plpgsql
set search_path from current
as $$
-- Takes an advisory lock until the end of the caller's transaction.  Returns whether the caller has it.  Waits for it
-- at most p_wait_ms, and at most half of statement_timeout; lock_timeout does not count.
-- The number of the lock is made from the oid of this queue's table, so queues in several schemas of a database, even
-- renamed ones, never share one.
-- Every login of the database may hold the lock, without any right.  So it may save work and waits, but nothing depends
-- on it: the caller goes on without it.  The functions of the queue call this; clients do not.
-- A transaction that would wait, and go on without, takes 3000 locks, and then does without: a server has room for some
-- thousands, and without room the transactions of others fail, too.
declare
    v_calls integer;
    v_number bigint := hashtextextended('pgqueue_message'::regclass::oid || ' ' || p_what, 0);
    v_lock_timeout text := current_setting('lock_timeout');
    v_wait_ms integer := p_wait_ms;
    v_bound text;
begin
    if p_wait_ms > 0 then
        v_calls := coalesce(nullif(current_setting('pgqueue.advisory_locks', true), '')::integer, 0);
        if v_calls >= 3000 then
            return false;
        end if;
        perform set_config('pgqueue.advisory_locks', (v_calls + 1)::text, true);
    end if;
    if p_shared and pg_try_advisory_xact_lock_shared(v_number) then
        return true;
    elsif not p_shared and pg_try_advisory_xact_lock(v_number) then
        return true;
    end if;
    v_bound := current_setting('statement_timeout');
    if v_bound <> '0' then
        v_wait_ms := least(v_wait_ms, extract(epoch from v_bound::interval) * 500);
    end if;
    if v_wait_ms <= 0 then  -- a lock_timeout of 0 means no limit
        return false;
    end if;
    begin
        perform set_config('lock_timeout', v_wait_ms::text, true);
        if p_shared then
            perform pg_advisory_xact_lock_shared(v_number);
        else
            perform pg_advisory_xact_lock(v_number);
        end if;
        perform set_config('lock_timeout', v_lock_timeout, true);
        return true;
    exception
        when lock_not_available then  -- the setting is rolled back
            return false;
    end;
end
$$;
