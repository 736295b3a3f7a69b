create or replace function pgqueue_message_reschedule(
    p_ids bigint[],
    p_dequeue_at bigint default null,
    p_break_dependencies boolean default false
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives waiting messages another dequeue_at (epoch ms; null: now, that is, run them at once).  Returns the ids of the
-- moved messages; one that runs, has ended, or waits for others (pgqueue_message_create_after) is missing in the result,
-- and nothing happened to it.  A quarantined message is taken alone from this time on.  A parked message is unparked.
--   p_break_dependencies  true: a message that waits for others is moved, too.  It does not wait for them any more: it
--                         may run while they run, and it runs although one of them fails.
-- Locks rows of pgqueue_message in the order of ids; wakes one sleeping worker for each queue that got work.
declare
    v_now bigint := pgqueue_now();
    v_dequeue_at bigint := coalesce(p_dequeue_at, v_now);
    v_message record;
    v_queues text[] := '{}';
begin
    for v_message in
        update pgqueue_message m
        set dequeue_at = case when m.alone_at is null then v_dequeue_at else 9223372036854775807 end,
            in_line = m.alone_at is null and v_dequeue_at <= v_now,
            alone_at = case when m.alone_at is not null then v_dequeue_at end, parked_at = null, after_ids = null, after_policy = null,
            check_at = null, checks = null, awaited_id = null,
            -- What it has waited for may have come: retention keeps that for a message that is suspended no more.
            suspended_attempt = case when m.suspended_attempt is null or m.awaited_event is not null
                                          or not m.in_line and m.parked_at is null
                                     then m.suspended_attempt else 0 end
        where m.id = any (p_ids) and m.worker is null and (p_break_dependencies or m.after_ids is null)
        returning m.id, m.queue
    loop
        if v_message.queue <> all (v_queues) then
            v_queues := v_queues || v_message.queue;
            if v_dequeue_at <= v_now then
                perform pgqueue_worker_wake(v_message.queue);
            else
                perform pgqueue_worker_wake_by(v_message.queue, null, v_dequeue_at);
            end if;
        end if;
        return next v_message.id;
    end loop;
end
$$;
