create or replace function pgqueue_queue_pause(p_queue text, p_by text default null) returns void
language sql
set search_path from current
as $$
    -- Pauses a queue: from the commit on, no message of it is dequeued.  Running messages go on; new ones wait.
    -- p_by: the person who paused it, for people who wonder why nothing happens.
    insert into pgqueue_queue (name, paused_at, paused_by)
    values (p_queue, pgqueue_clock(), coalesce(p_by, current_user))
    on conflict (name) do update set paused_at = excluded.paused_at, paused_by = excluded.paused_by
    where pgqueue_queue.paused_at is null
$$;
