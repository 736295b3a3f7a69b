create or replace function pgqueue_worker_gone(p_id text, p_silent_ms bigint default 600000) returns void
language sql
set search_path from current
as $$
    -- Deletes the row of a worker, and of all workers not seen for p_silent_ms: those died without signing off.
    delete from pgqueue_worker w
    where w.id = p_id or w.seen_at < pgqueue_clock() - p_silent_ms * interval '1 millisecond'
$$;
