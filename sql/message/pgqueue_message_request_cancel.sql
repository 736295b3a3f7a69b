create or replace function pgqueue_message_request_cancel(p_ids bigint[]) returns setof bigint
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Asks the consumers of running messages to stop; they see it within about a second (pgqueue_message_cancellations)
    -- and end the attempt as cancelled.  A message whose attempt ends otherwise, or is lost, is not tried again.  Returns
    -- the ids of these messages; one that waits (pgqueue_message_cancel) or has ended is missing in the result.
    -- Locks rows of pgqueue_message in the order of ids.
    update pgqueue_message m
    set cancel_requested_at = coalesce(m.cancel_requested_at, pgqueue_clock())
    where m.id = any (p_ids) and m.worker is not null
    returning m.id
$$;
