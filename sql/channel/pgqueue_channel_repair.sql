create or replace function pgqueue_channel_repair(p_name text default null)
returns table (p_channel text, p_before integer, p_after integer)
language plpgsql
set search_path from current
set jit = off
as $$
-- Counts anew what runs in each channel (p_name: in this one), and lets all lanes with waiting messages be looked at.
-- Returns the channels whose count was wrong.  Nothing that goes through the functions, and no delete or update by hand,
-- makes it wrong; a trigger that was switched off, a truncate or a restored table may.
-- Waits for the dequeues that go on in a channel; dequeues pass it over until the caller's transaction ends.
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
        -- One statement: what a transaction that goes on has ended is still locked here, and not yet noted as ended.
        select (select count(*) from pgqueue_message m where m.channel = p_channel and m.unlock_at is not null)
             + (select coalesce(sum(a.ended), 0) from pgqueue_arrival a where a.channel = p_channel)
        into p_after;
        update pgqueue_channel c set running = least(p_after, 1000000000) where c.name = p_channel and c.running <> p_after;
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
