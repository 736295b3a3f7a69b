create or replace function pgqueue_child_add(
    p_id bigint,
    p_attempt integer,
    p_child_id bigint,
    p_worker text default null,
    p_cancels boolean default true
) returns boolean
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Records, in the transaction that enqueues the message p_child_id, that it is a child of a message that the caller
    -- holds.  p_cancels: it is cancelled with its parent, unless it has begun.
    -- Returns false when the attempt is not the caller's any more: the caller rolls back.
    -- Locks one row of pgqueue_message as pgqueue_step_record does; writes pgqueue_child.
    with held as (
        select m.id from pgqueue_message m
        where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
        for key share
    ),
    added as (
        insert into pgqueue_child (message_id, parent_id, created_at, cancels)
        select p_child_id, h.id, pgqueue_clock(), p_cancels from held h
        on conflict do nothing
    )
    select exists (select from held)
$$;
