create or replace function pgqueue_message_keep(p_id bigint, p_attempt integer, p_worker text default null) returns boolean
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Keeps a message as long as the caller's transaction lasts: no consumer takes it over, even when its lock expires.
    -- For transactions with the isolation level repeatable read or serializable, which cannot end an attempt whose row
    -- has changed since they began: call this first, and send no heartbeats meanwhile.
    -- Returns true when done, false when the attempt is not the caller's any more.
    -- Locks one row of pgqueue_message for key share, which lets a request to cancel it pass.
    with kept as materialized (
        select m.id from pgqueue_message m
        where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
        for key share
    )
    select exists (select from kept)
$$;
