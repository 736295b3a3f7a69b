create or replace function pgqueue_message_lines(p_limit integer default 10000)
returns table (p_queue text, p_raw boolean, p_priority integer)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- The first p_limit queues and priorities in which messages without a channel stand in line: tasks and raw messages
    -- (p_raw) in turn, the highest priorities of each first, and then the names.  One probe of pgqueue_message_ready_ix for each (a loose index scan),
    -- however many messages they hold.
    with recursive line as (
        select k.raw, h.priority, h.queue
        from (values (false), (true)) as k (raw)
        cross join lateral (
            select m.priority, m.queue from pgqueue_message m
            where (m.task is null) = k.raw and m.unlock_at is null and m.in_line and m.channel is null
            order by m.priority desc, m.queue limit 1
        ) as h
        union all
        select l.raw, n.priority, n.queue
        from line l
        cross join lateral (
            (select m.priority, m.queue from pgqueue_message m
             where (m.task is null) = l.raw and m.unlock_at is null and m.in_line and m.channel is null
               and m.priority = l.priority and m.queue > l.queue
             order by m.queue limit 1)
            union all
            (select m.priority, m.queue from pgqueue_message m
             where (m.task is null) = l.raw and m.unlock_at is null and m.in_line and m.channel is null
               and m.priority < l.priority
             order by m.priority desc, m.queue limit 1)
            limit 1
        ) as n
    )
    select l.queue, l.raw, l.priority::integer from line l limit p_limit
$$;
