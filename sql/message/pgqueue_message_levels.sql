create or replace function pgqueue_message_levels() returns table (p_raw boolean, p_priority integer)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Returns the priorities of the messages in line without a channel, for tasks and for raw messages (p_raw).  One
    -- probe of pgqueue_message_ready_ix for each (a loose index scan), so 402 at most.
    with recursive level as (
        select k.raw, h.priority
        from (values (false), (true)) as k (raw)
        cross join lateral (
            select m.priority from pgqueue_message m
            where (m.task is null) = k.raw and m.unlock_at is null and m.in_line and m.channel is null
            order by m.priority desc limit 1
        ) as h
        union all
        select l.raw, n.priority
        from level l
        cross join lateral (
            select m.priority from pgqueue_message m
            where (m.task is null) = l.raw and m.unlock_at is null and m.in_line and m.channel is null
              and m.priority < l.priority
            order by m.priority desc limit 1
        ) as n
    )
    select l.raw, l.priority::integer from level l
$$;
