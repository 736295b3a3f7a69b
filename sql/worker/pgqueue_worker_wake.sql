create or replace function pgqueue_worker_wake(p_queue text, p_tasks boolean default null) returns void
language plpgsql
set search_path from current
as $$
-- Wakes one sleeping consumer that serves p_queue, if there is one: with p_tasks a worker, without a consumer of raw
-- messages, and where p_tasks is null one of each.  The notification is delivered when the caller's transaction commits.
-- Nobody is woken where one that is awake has room: it looks every few milliseconds, and wakes the next when it has
-- taken as much as it could.  One that has not been seen for two seconds may be dead, and does not count; until then
-- the sleepers, who look every second by themselves, find what it does not.
-- Reads pgqueue_worker without a row lock and writes nothing, so enqueues never wait for each other here.  While the
-- workers are busy nobody sleeps and nobody is notified: a notification costs every commit of the whole database cluster
-- a place in one line.
-- Raises nothing, whatever stands in pgqueue_worker: a notification channel has less than 64 bytes and a payload less than
-- 8000, and who cannot be notified finds the message when it looks by itself.
declare
    v_now bigint;
    v_tasks boolean;
    v_sleeper text;
    v_awake boolean;
begin
    -- The usual case of a busy queue is answered by one statement: this runs at every enqueue.
    if p_tasks is not null and exists (
        select from pgqueue_worker w
        where w.has_room and w.asleep_until is null and w.tasks = p_tasks
          and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
          and w.seen_at > pgqueue_clock() - interval '2 seconds'
    ) or not exists (select from pgqueue_worker w where w.asleep_until is not null) then
        return;
    end if;
    v_now := pgqueue_now();
    for v_tasks, v_sleeper, v_awake in
        select w.tasks, min(w.id) filter (where w.asleep_until > v_now and octet_length(w.id) < 56),
               bool_or(w.asleep_until is null and w.has_room and w.seen_at > pgqueue_clock() - interval '2 seconds')
        from pgqueue_worker w
        where (p_tasks is null or w.tasks = p_tasks)
          and (w.queues is null or p_queue = any (w.queues))
          and p_queue <> all (w.exclude_queues)
        group by w.tasks
    loop
        if v_sleeper is not null and not v_awake then
            perform pg_notify('pgqueue_' || v_sleeper, left(p_queue, 255));
        end if;
    end loop;
end
$$;
