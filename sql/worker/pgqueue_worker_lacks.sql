create or replace function pgqueue_worker_lacks(p_id text, p_lacks text[], p_refuses text[] default '{}') returns void
language sql
set search_path from current
as $$
    -- Records which tasks of parked messages a worker does not know (p_lacks), and of which ones that it knows it can take
    -- the arguments of no parked message (p_refuses); the first 50 of each are stored.  Unknown messages of all these do
    -- not wake it, and may fail while it lives (pgqueue_message_unknown_fail).  Workers of earlier versions leave
    -- messages of tasks that it refuses to it, because it may take the next one, and those of tasks that it lacks not.
    -- A worker calls this after pgqueue_worker_seen, for as long as it lacks anything and once more when it does not.
    -- Writes its row only where it changes.
    update pgqueue_worker w
    set lacks = n.lacks, refuses = n.refuses
    from (select nullif(p_lacks[:50], '{}') as lacks, nullif(p_refuses[:50], '{}') as refuses) as n
    where w.id = p_id and (w.lacks, w.refuses) is distinct from (n.lacks, n.refuses)
$$;
