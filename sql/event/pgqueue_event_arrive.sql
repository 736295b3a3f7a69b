create or replace function pgqueue_event_arrive(p_names text[], p_limit integer default 100) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
-- Makes the messages ready that wait for these events, where they have been emitted.  Returns how many.
-- Up to p_limit of them for each event.  Where more are left, or others have locked them, pgqueue_ended gets the name
-- again.  pgqueue_message_settle calls this; consumers do not.
-- Locks rows of pgqueue_message without waiting for any; writes pgqueue_message and pgqueue_ended; wakes workers.
declare
    v_now bigint := pgqueue_now();
    v_woken integer := 0;
    v_queue record;
begin
    for v_queue in
        with ready as (
            update pgqueue_message m
            set dequeue_at = v_now, in_line = true, awaited_event = null
            where m.id = any (array(
                select w.id
                from unnest(p_names) as n (name)
                join pgqueue_event e on e.name = n.name
                cross join lateral (
                    select s.id from pgqueue_message s
                    where s.awaited_event = e.name and s.suspended_attempt is not null
                      and s.suspended_attempt = s.attempt and s.unlock_at is null and s.parked_at is null
                    limit p_limit
                    for update skip locked
                ) as w))
            returning m.queue
        )
        select r.queue, count(*)::integer as messages from ready r group by r.queue
    loop
        perform pgqueue_worker_wake(v_queue.queue, true);
        v_woken := v_woken + v_queue.messages;
    end loop;
    insert into pgqueue_ended (message_id, event, look_at)
    select 0, e.name, v_now + case when v_woken = 0 then 100 else 0 end
    from unnest(p_names) as n (name)
    join pgqueue_event e on e.name = n.name
    where (select true from pgqueue_message s
           where s.awaited_event = e.name and s.suspended_attempt is not null
             and s.suspended_attempt = s.attempt and s.unlock_at is null and s.parked_at is null
           limit 1);
    return v_woken;
end
$$;
