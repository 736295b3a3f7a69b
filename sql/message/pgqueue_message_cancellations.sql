create or replace function pgqueue_message_cancellations(p_ids bigint[], p_worker text) returns setof bigint
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Returns the ids of the given messages that the caller holds and was asked to stop.
    select m.id from pgqueue_message m
    where m.id = any (p_ids) and m.worker = p_worker and m.cancel_requested_at is not null
$$;
