create or replace function pgqueue_worker_lacks(p_id text, p_lacks text[]) returns void
language sql
set search_path from current
as $$
    -- Records which tasks of parked messages a worker does not know, or whose arguments it cannot take; the first 50 of
    -- them are stored.  Their parking does not wake it, and they may fail while it lives (pgqueue_message_unknown_fail).
    -- A worker calls this after pgqueue_worker_seen, for as long as it lacks anything and once more when it does not.
    -- Writes its row only where it changes.
    update pgqueue_worker w
    set lacks = nullif(p_lacks[:50], '{}')
    where w.id = p_id and w.lacks is distinct from nullif(p_lacks[:50], '{}')
$$;
