create or replace function pgqueue_worker_hold(p_id text) returns boolean
language plpgsql
set search_path from current
as $$
-- Takes the advisory lock of a worker for the caller's session, until that ends, and returns whether the session has it.
-- While any session holds it, nobody takes the worker for dead (pgqueue_worker_expire).  A worker that has it says so by
-- p_held of pgqueue_worker_seen, and calls this again in each new session, and under each new name.
-- The lock is shared, so several sessions of a worker hold it, the new one while the server still keeps the broken one.
-- Waits for nobody.  Every login of the database may hold the lock: one that holds it alone keeps the worker from having
-- it, and one that holds it for a dead worker makes that look alive.  Then the locks of the messages decide.
-- Not for sessions of a transaction pooler, which belong to no worker.
begin
    return coalesce(pg_try_advisory_lock_shared(pgqueue_worker_number(p_id)), false);
exception
    when feature_not_supported or out_of_memory then  -- out_of_memory: of the server's table of locks
        return false;
end
$$;
