create or replace function pgqueue_worker_wake(
    p_queue text,
    p_tasks boolean default null,
    p_next boolean default false
) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
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
-- Every step is a probe of a small index, whatever the number of workers.
-- Reads pgqueue_worker without a row lock and writes nothing, so enqueues never wait for each other here.  While the
-- workers are busy, none sleeps and none is notified: all commits of a database cluster that notify wait in one line.
-- Raises no error, whatever pgqueue_worker contains: a notification channel has less than 64 bytes and a payload less
-- than 8000, and a consumer that cannot be notified finds the message at its next poll.
declare
    v_now bigint;
    v_tasks boolean;
    v_sleeper text;
    v_payload text := left(p_queue, 255) || case when p_next then E'\n' else '' end;
begin
    if not exists (select from pgqueue_worker w where w.is_asleep) then  -- the usual case of a busy queue
        return;
    end if;
    v_now := pgqueue_now();
    foreach v_tasks in array case when p_tasks is null then array[false, true] else array[p_tasks] end loop
        if exists (
            select from pgqueue_worker w
            where w.has_room and w.asleep_until is null and w.tasks = v_tasks
              and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
              and w.seen_at between pgqueue_clock() - interval '2 seconds' and pgqueue_clock() + interval '2 seconds'
        ) then
            continue;
        end if;
        select w.id
        into v_sleeper
        from pgqueue_worker w
        where w.is_asleep and w.asleep_until > v_now and (w.silent_until > v_now) is not false
          and w.tasks = v_tasks and octet_length(w.id) < 56
          and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
        order by w.id limit 1;
        if not found then
            continue;
        end if;
        perform pg_notify('pgqueue_' || v_sleeper, v_payload);
        perform pg_notify('pgqueue_' || r.id, v_payload)
        from (
            select w.id from pgqueue_worker w
            where w.silent_until is not null and w.silent_until > v_now and w.asleep_until > v_now
              and w.tasks = v_tasks and octet_length(w.id) < 56
              and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
            order by w.id limit 100
        ) as r
        where r.id <> v_sleeper;
    end loop;
end
$$;
