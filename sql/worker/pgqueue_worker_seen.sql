create or replace function pgqueue_worker_seen(
    p_id text,
    p_queues text[],
    p_exclude_queues text[],
    p_hostname text,
    p_pid integer,
    p_slots integer,
    p_asleep_ms bigint default null,
    p_tasks boolean default true,
    p_has_room boolean default false,
    p_problem text default null,
    p_held boolean default false
) returns void
language plpgsql
set search_path from current
as $$
-- Records that a worker is alive, and registers it on the first call.  p_asleep_ms: it now waits for a notification on
-- the notification channel 'pgqueue_' || p_id, and calls this again within that time; null: it is awake.
-- p_tasks: it runs tasks; false: it takes raw messages.
-- p_has_room: it is awake and polls every few milliseconds.  A worker that sets this must take it back when it does so
-- no more, and wake the next one (pgqueue_worker_wake) when it took as much as it could.
-- p_problem: what the worker cannot do at present, for the people who operate it.
-- p_held: a session of the worker holds its advisory lock (pgqueue_worker_hold).  When no session holds it any more, and
-- the worker has not called this for some seconds, it is gone; without p_held the locks of its messages decide.
-- A worker that goes to sleep must poll once more after this call is committed: an enqueue that read the sleepers
-- before did not notify it.
begin
    if p_asleep_ms not between -1000000000000 and 1000000000000 then
        raise exception 'p_asleep_ms is %', p_asleep_ms
            using errcode = 'invalid_parameter_value', hint = 'It must be milliseconds, at most 1000000000000.';
    end if;
    insert into pgqueue_worker as w (id, queues, exclude_queues, hostname, pid, slots, tasks, has_room, problem, seen_at,
        asleep_until, server_started_at)
    values (p_id, p_queues, p_exclude_queues, p_hostname, p_pid, p_slots, p_tasks, p_has_room, left(p_problem, 500),
            pgqueue_clock(), pgqueue_now() + p_asleep_ms,
            case when p_held then pgqueue_to_epoch(pg_postmaster_start_time()) end)
    on conflict (id) do update
    set seen_at = excluded.seen_at, asleep_until = excluded.asleep_until, slots = excluded.slots,
        has_room = excluded.has_room, problem = excluded.problem, silent_until = null,
        server_started_at = excluded.server_started_at;
end
$$;
