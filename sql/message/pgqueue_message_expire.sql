create or replace function pgqueue_message_expire(
    p_limit integer default 100,
    p_queues text[] default null,
    p_tasks boolean default null
) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
-- Takes messages whose lock has expired away from consumers that went away, and returns how many.  Each such attempt is
-- recorded as lost, and its message is ready again, or fails when it was lost too often (pgqueue_message_lose).
-- p_queues, p_tasks: only of these queues, and only tasks, or only raw messages.
-- pgqueue_message_dequeue calls this; clients need not.  Locks rows of pgqueue_message without waiting for any;
-- writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
    v_now bigint := pgqueue_now();
    v_count integer := 0;
begin
    for v_message in
        select m.* from pgqueue_message m
        where m.unlock_at is not null and m.unlock_at <= v_now
          and (p_queues is null or m.queue = any (p_queues)) and (p_tasks is null or (m.task is null) = (not p_tasks))
        order by m.unlock_at
        limit p_limit
        for update skip locked
    loop
        perform pgqueue_message_lose(
            v_message,
            format('the lock of worker %s ran out at %s', v_message.worker,
                   pgqueue_from_epoch(v_message.unlock_at) at time zone 'UTC' || ' UTC'),
            false);
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;
