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
    p_max_attempts integer default null,
    p_worker text default null
) returns boolean
language plpgsql
set search_path from current
as $$
-- Makes a schedule that a project's code declares, or updates it.  p_next_at counts when the schedule is new or its
-- rule has changed; a paused schedule stays paused.
-- Returns true when the schedule now is as declared, false when the caller has to call again.  There are two reasons
-- for false.  Either another live worker declares the present state of the schedule (p_worker: the worker that calls):
-- of two versions of the code the first stays in force until its last worker has left.  Or the rule has changed while
-- slots of the old rule are due, and pgqueue_schedule_fire comes first.
-- Locks one row of pgqueue_schedule, where there is a change; writes pgqueue_schedule_declaration.
declare
    v_schedule pgqueue_schedule;
    v_waits boolean;
    v_stands bigint;
    v_declared bigint := hashtextextended(row(
        p_task, p_cron, p_interval_ms, p_timezone, p_catch_up, p_content, p_queue, p_priority, p_max_attempts)::text, 0);
begin
    p_content := pgqueue_message_readable(p_content, 'content');
    insert into pgqueue_schedule (
        name, task, next_at, cron, interval_ms, timezone, catch_up, content, queue, priority, max_attempts, declared)
    select p_name, p_task, p_next_at, p_cron, p_interval_ms, p_timezone, p_catch_up, p_content, p_queue, p_priority,
           p_max_attempts, true
    where not exists (select from pgqueue_schedule s where s.name = p_name)
    on conflict (name) do nothing;
    if p_worker is not null then
        insert into pgqueue_schedule_declaration as d (name, worker, declaration) values (p_name, p_worker, v_declared)
        on conflict (name, worker) do update set declaration = excluded.declaration
        where d.declaration <> excluded.declaration;
    end if;

    -- Every worker calls this once a minute: an unchanged schedule is neither written nor locked.
    if exists (
        select from pgqueue_schedule s
        where s.name = p_name and s.declared and v_declared = hashtextextended(row(
            s.task, s.cron, s.interval_ms, s.timezone, s.catch_up, s.content, s.queue, s.priority, s.max_attempts)::text, 0)
    ) then
        return true;
    end if;

    select s.* into v_schedule from pgqueue_schedule s where s.name = p_name for update;
    if not found then  -- just deleted by hand
        return false;
    end if;
    v_stands := hashtextextended(row(
        v_schedule.task, v_schedule.cron, v_schedule.interval_ms, v_schedule.timezone, v_schedule.catch_up,
        v_schedule.content, v_schedule.queue, v_schedule.priority, v_schedule.max_attempts)::text, 0);
    if v_schedule.declared and v_stands <> v_declared and exists (
        select from pgqueue_schedule_declaration d
        join pgqueue_worker w on w.id = d.worker
        where d.name = p_name and d.declaration = v_stands and d.worker is distinct from p_worker
          and (w.seen_at > pgqueue_clock() - interval '1 minute' or w.silent_until > pgqueue_now())
    ) then
        return false;
    end if;

    v_waits := (v_schedule.cron, v_schedule.interval_ms, v_schedule.timezone)
            is distinct from (p_cron, p_interval_ms, p_timezone)
        and v_schedule.paused_at is null and v_schedule.next_at <= pgqueue_now();
    update pgqueue_schedule s
    set task = p_task, content = p_content, queue = p_queue, priority = p_priority, max_attempts = p_max_attempts,
        declared = true,
        cron = case when v_waits then s.cron else p_cron end,
        interval_ms = case when v_waits then s.interval_ms else p_interval_ms end,
        timezone = case when v_waits then s.timezone else p_timezone end,
        catch_up = case when v_waits then s.catch_up else p_catch_up end,
        next_at = case
            when v_waits or (s.cron, s.interval_ms, s.timezone) is not distinct from (p_cron, p_interval_ms, p_timezone)
            then s.next_at else p_next_at
        end
    where s.name = p_name
      and (not v_waits or (s.task, s.content, s.queue, s.priority, s.max_attempts, s.declared)
           is distinct from (p_task, p_content, p_queue, p_priority, p_max_attempts, true));
    return not v_waits;
end
$$;
