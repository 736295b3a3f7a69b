create or replace function pgqueue_schedule_declare(
    p_name text,
    p_task text,
    p_next_at bigint,
    p_cron text default null,
    p_interval_ms bigint default null,
    p_timezone text default 'UTC',
    p_catch_up text default 'one',
    p_content jsonb default '{"args": [], "kwargs": {}}',
    p_queue text default 'default',
    p_priority integer default 0,
    p_max_attempts integer default null
) returns void
language sql
set search_path from current
as $$
    -- Makes a schedule that a project's code declares, or brings it up to date.  p_next_at counts when it is new or its
    -- rule has changed; one that is paused stays paused.
    insert into pgqueue_schedule as s (
        name, task, next_at, cron, interval_ms, timezone, catch_up, content, queue, priority, max_attempts, declared)
    values (p_name, p_task, p_next_at, p_cron, p_interval_ms, p_timezone, p_catch_up, p_content, p_queue, p_priority,
            p_max_attempts, true)
    on conflict (name) do update
    set task = excluded.task, cron = excluded.cron, interval_ms = excluded.interval_ms, timezone = excluded.timezone,
        catch_up = excluded.catch_up, content = excluded.content, queue = excluded.queue, priority = excluded.priority,
        max_attempts = excluded.max_attempts, declared = true,
        next_at = case
            when (s.cron, s.interval_ms, s.timezone) is distinct from (excluded.cron, excluded.interval_ms, excluded.timezone)
            then excluded.next_at else s.next_at
        end
    -- Every worker says this at its start: what has not changed is not written.
    where (s.task, s.cron, s.interval_ms, s.timezone, s.catch_up, s.content, s.queue, s.priority, s.max_attempts, s.declared)
        is distinct from (excluded.task, excluded.cron, excluded.interval_ms, excluded.timezone, excluded.catch_up,
                          excluded.content, excluded.queue, excluded.priority, excluded.max_attempts, true)
$$;
