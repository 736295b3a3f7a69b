create or replace function pgqueue_channel_release(p_name text) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Releases a channel: it takes no new messages, and is removed when its last message has ended.  Messages that other
-- transactions have enqueued and not committed yet still arrive, and nothing is lost.
-- Returns true when it is removed already, false when it still has messages, null when there is no such channel.
-- Locks the row of the channel: dequeues skip the channel until the caller's transaction ends, enqueues do not wait.
begin
    -- It may be that no dequeue has seen the channel's first messages yet.
    perform pgqueue_advisory_lock('channel ' || p_name, p_wait_ms => 1000);
    insert into pgqueue_channel (name)
    select p_name where exists (select from pgqueue_arrival a where a.channel = p_name)
    on conflict do nothing;
    update pgqueue_channel c set released_at = coalesce(c.released_at, pgqueue_clock(now())) where c.name = p_name;
    if not found then
        return null;
    end if;
    perform pgqueue_lane_arm();
    perform pgqueue_channel_prune(p_name);
    return not exists (select from pgqueue_channel c where c.name = p_name);
end
$$;
