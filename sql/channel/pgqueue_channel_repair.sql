create or replace function pgqueue_channel_repair(p_name text default null)
returns table (p_channel text, p_before integer, p_after integer)
language plpgsql
set search_path from current
set jit = off
as $$
-- Counts the running messages of each channel again (p_name: of this one), and has dequeues look at all lanes with
-- waiting messages.  Returns the channels whose count was wrong.  No function of the queue, and no delete or update by
-- hand, makes it wrong; a disabled trigger, a truncate or a restored table may.  A channel waits for no more than its
-- interval: a clock that was ahead has set a later time.
-- Waits for the current dequeues of a channel; later dequeues skip it until the caller's transaction ends.
begin
    for p_channel in
        select distinct m.channel from pgqueue_message m where m.channel is not null and m.channel = coalesce(p_name, m.channel)
        union
        select c.name from pgqueue_channel c where c.name = coalesce(p_name, c.name)
        order by 1
    loop
        perform pgqueue_advisory_lock('channel ' || p_channel, p_wait_ms => 1000);
        insert into pgqueue_channel (name) values (p_channel) on conflict do nothing;
        select c.running into p_before from pgqueue_channel c where c.name = p_channel for update;
        -- One statement: a message that an open transaction has ended is still locked here, and its end not yet noted.
        select (select count(*) from pgqueue_message m where m.channel = p_channel and m.unlock_at is not null)
             + (select coalesce(sum(a.ended), 0) from pgqueue_arrival a where a.channel = p_channel)
        into p_after;
        update pgqueue_channel c set running = least(p_after, 1000000000) where c.name = p_channel and c.running <> p_after;
        update pgqueue_channel c set release_at = pgqueue_now() + c.release_interval_ms
        where c.name = p_channel and c.release_at > pgqueue_now() + c.release_interval_ms;
        insert into pgqueue_arrival (channel, queue, raw, dequeue_at)
        select m.channel, m.queue, m.task is null, min(m.dequeue_at)
        from pgqueue_message m
        where m.channel = p_channel and m.unlock_at is null
        group by m.channel, m.queue, m.task is null;
        if p_before <> p_after then
            return next;
        end if;
    end loop;
end
$$;
