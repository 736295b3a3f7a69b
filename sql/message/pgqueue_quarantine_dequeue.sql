create or replace function pgqueue_quarantine_dequeue(
    p_queues text[] default null,
    p_lock_ms bigint default 60000,
    p_worker text default null,
    p_exclude_queues text[] default '{}'
) returns setof pgqueue_message
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
-- Takes one due message from quarantine and locks it for p_lock_ms: the one with the fewest losses, so that a message
-- that kills every worker never keeps the others waiting.  For a worker that holds nothing else: when that worker dies,
-- only this message can be the cause.  Returns the row as it is now, or nothing.  Parameters as in
-- pgqueue_message_dequeue, which skips these messages.  A raw message is never quarantined: no worker runs it, whatever
-- its row says.
-- A message of a channel is taken where the channel has room, and counts as running there.
-- Locks one row of pgqueue_message, and the row of its channel, without waiting for any; skips locked rows.
declare
    v_clock timestamptz := pgqueue_clock();
    v_now bigint := floor(extract(epoch from v_clock) * 1000);
    v_line refcursor;
    v_message pgqueue_message;
begin
    if (p_lock_ms between 1 and 1000000000000) is not true then
        raise exception 'p_lock_ms is %', coalesce(p_lock_ms::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'It must be milliseconds, from 1 to 1000000000000.';
    end if;
    -- Read row by row, so that it locks only the message that it takes.
    open v_line for
        select m.* from pgqueue_message m
        where m.alone_at is not null and m.task is not null and m.unlock_at is null and m.alone_at <= v_now
          and (p_queues is null or m.queue = any (p_queues)) and m.queue <> all (p_exclude_queues)
          and m.queue <> all (array(select q.name from pgqueue_queue q where q.paused_at is not null))
        order by m.lost, m.alone_at, m.id
        for update skip locked;
    loop
        fetch v_line into v_message;
        exit when not found;
        if exists (select from pgqueue_channel c where c.name = v_message.channel) then
            update pgqueue_channel c
            set running = c.running + 1,
                release_at = case when c.release_interval_ms > 0 then v_now + c.release_interval_ms end
            where c.name = any (array(
                select d.name from pgqueue_channel d
                where d.name = v_message.channel
                  and (d.running < d.max_concurrency) is not false and (d.release_at <= v_now) is not false
                for no key update skip locked
            ));
            continue when not found;
        elsif v_message.channel is not null then  -- the channel has no row yet, and so no limits
            insert into pgqueue_arrival (channel, queue, raw, ended)
            values (v_message.channel, v_message.queue, v_message.task is null, -1);
        end if;
        return query
        update pgqueue_message m
        set unlock_at = v_now + p_lock_ms, locked_at = v_clock, worker = coalesce(p_worker, pgqueue_session_worker()),
            attempt = least(m.attempt, 1999999999) + 1, dequeue_at = m.alone_at
        where m.id = v_message.id
        returning m.*;
        exit;
    end loop;
    close v_line;
end
$$;
