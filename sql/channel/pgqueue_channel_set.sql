create or replace function pgqueue_channel_set(
    p_name text,
    p_max_concurrency integer default null,
    p_max_size integer default null,
    p_release_interval_ms integer default null
) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Sets all limits of a channel (see pgqueue_channel); null removes one.  Running messages go on, whatever the new limit
-- is.  A released channel is in use again.
-- Locks the row of the channel: dequeues skip the channel until the caller's transaction ends, enqueues do not wait.
begin
    -- A dequeue that finds a new channel must not wait for this transaction (see pgqueue_lane_arm).
    perform pgqueue_advisory_lock('channel ' || p_name, p_wait_ms => 1000);
    insert into pgqueue_channel as c (name, max_concurrency, max_size, release_interval_ms, set_at)
    values (p_name, p_max_concurrency, p_max_size, p_release_interval_ms, pgqueue_clock(now()))
    on conflict (name) do update
    set max_concurrency = excluded.max_concurrency, max_size = excluded.max_size,
        release_interval_ms = excluded.release_interval_ms, set_at = excluded.set_at, released_at = null,
        -- The rest of the earlier interval, but no more than the new one.
        release_at = case when excluded.release_interval_ms > 0 and c.release_at is not null
                          then least(c.release_at, pgqueue_now() + excluded.release_interval_ms) end;

    -- The next dequeue looks at its lanes again.
    insert into pgqueue_arrival (channel, queue, raw, dequeue_at)
    select l.channel, l.queue, l.raw, pgqueue_now() from pgqueue_lane l where l.channel = p_name;
    perform pgqueue_worker_wake(q.queue, not q.raw) from (select l.queue, l.raw from pgqueue_lane l where l.channel = p_name) as q;
end
$$;
