create or replace function pgqueue_message_progress(p_id bigint, p_attempt integer, p_worker text, p_progress jsonb)
returns boolean
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Records the progress of a message that the caller holds: {"fraction": 0.4, "text": "..."}.  Returns true when done,
    -- false when the attempt is not the caller's any more.  Locks one row.
    with said as (
        update pgqueue_message m set progress = pgqueue_message_readable(p_progress, 'progress')
        where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
        returning m.id
    )
    select exists (select from said)
$$;
