create or replace function pgqueue_worker_wake(
    p_queue text,
    p_tasks boolean default null,
    p_next boolean default false
) returns void
language plpgsql
set search_path from current
as $$
-- Wakes one sleeping consumer that serves p_queue, if there is one: a worker when p_tasks is true, a consumer of raw
-- messages when it is false, one of each when it is null.  The notification is delivered at the caller's commit.
-- p_next: a consumer calls this because it has no room any more.  The payload then ends with a line feed, and who is
-- woken asks for the open transactions: one of them may have read that the caller had room, and so notified nobody.
-- Wakes none while an awake consumer has room: that one polls every few milliseconds, and wakes the next when it has
-- taken as much as it could.  A consumer that has not been seen for two seconds may be dead, and does not count; until
-- then the sleepers, which poll every second, find the messages that it misses: none rests while it lives.
-- Workers that rest (silent_until) are all woken, up to a hundred: they poll no more, so the message may not depend on
-- one of them, which may have died.
-- Reads pgqueue_worker without a row lock and writes nothing, so enqueues never wait for each other here.  While the
-- workers are busy, none sleeps and none is notified: all commits of a database cluster that notify wait in one line.
-- Raises no error, whatever pgqueue_worker contains: a notification channel has less than 64 bytes and a payload less
-- than 8000, and a consumer that cannot be notified finds the message at its next poll.
declare
    v_now bigint;
    v_tasks boolean;
    v_sleeper text;
    v_resting text[];
    v_awake boolean;
    v_next text := case when p_next then E'\n' else '' end;
begin
    -- One statement decides the usual case of a busy queue, because this runs at every enqueue.
    if p_tasks is not null and exists (
        select from pgqueue_worker w
        where w.has_room and w.asleep_until is null and w.tasks = p_tasks
          and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
          and w.seen_at > pgqueue_clock() - interval '2 seconds'
    ) or not exists (select from pgqueue_worker w where w.asleep_until is not null) then
        return;
    end if;
    v_now := pgqueue_now();
    for v_tasks, v_sleeper, v_resting, v_awake in
        select w.tasks, min(w.id) filter (where w.asleep_until > v_now and (w.silent_until > v_now) is not false and octet_length(w.id) < 56),
               array_agg(w.id) filter (where w.asleep_until > v_now and w.silent_until > v_now and octet_length(w.id) < 56),
               bool_or(w.asleep_until is null and w.has_room and w.seen_at > pgqueue_clock() - interval '2 seconds')
        from pgqueue_worker w
        where (p_tasks is null or w.tasks = p_tasks)
          and (w.queues is null or p_queue = any (w.queues))
          and p_queue <> all (w.exclude_queues)
        group by w.tasks
    loop
        if v_sleeper is not null and not v_awake then
            perform pg_notify('pgqueue_' || v_sleeper, left(p_queue, 255) || v_next);
            perform pg_notify('pgqueue_' || r.id, left(p_queue, 255) || v_next) from unnest(v_resting[:100]) as r (id) where r.id <> v_sleeper;
        end if;
    end loop;
end
$$;
