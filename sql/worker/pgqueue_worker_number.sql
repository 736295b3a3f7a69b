create or replace function pgqueue_worker_number(p_id text) returns bigint
language sql stable
set search_path from current
as $$
    -- Returns the number of the advisory lock that the sessions of a worker hold (pgqueue_worker_hold).  It is made from
    -- the oid of this queue's table, as in pgqueue_advisory_lock: the workers of several queues of a database never
    -- share one.
    select hashtextextended('pgqueue_message'::regclass::oid || ' worker ' || p_id, 0)
$$;
