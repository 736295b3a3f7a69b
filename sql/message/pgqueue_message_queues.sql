create or replace function pgqueue_message_queues(p_limit integer default 1000) returns setof text
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Returns up to p_limit queues that have waiting messages, in the order of their names.  One probe of an index for
    -- each queue and priority (loose index scans), however many messages they hold.  Each priority has its share of
    -- 10 * p_limit probes, and channels have as many: where there are more, some of the last names may be missing.
    with recursive level as materialized (
        select l.p_raw as raw, l.p_priority as priority, 10 * p_limit / count(*) over () + 1 as share
        from pgqueue_message_levels() as l
    ), scheduled as (
        (select m.queue from pgqueue_message m where m.unlock_at is null and not m.in_line and m.channel is null
         order by m.queue limit 1)
        union all
        select n.queue
        from scheduled s
        cross join lateral (
            select m.queue from pgqueue_message m
            where m.unlock_at is null and not m.in_line and m.channel is null and m.queue > s.queue
            order by m.queue limit 1
        ) as n
    ), in_lanes as (
        (select m.channel, m.queue from pgqueue_message m where m.unlock_at is null and m.channel is not null
         order by m.channel, m.queue limit 1)
        union all
        select n.channel, n.queue
        from in_lanes l
        cross join lateral (
            select m.channel, m.queue from pgqueue_message m
            where m.unlock_at is null and m.channel is not null and (m.channel, m.queue) > (l.channel, l.queue)
            order by m.channel, m.queue limit 1
        ) as n
    )
    select q.queue
    from (
        (select h.queue
         from level l
         cross join lateral (
            with recursive line as (
                (select m.queue from pgqueue_message m
                 where (m.task is null) = l.raw and m.unlock_at is null and m.in_line and m.channel is null
                   and m.priority = l.priority
                 order by m.queue limit 1)
                union all
                select n.queue
                from line k
                cross join lateral (
                    select m.queue from pgqueue_message m
                    where (m.task is null) = l.raw and m.unlock_at is null and m.in_line and m.channel is null
                      and m.priority = l.priority and m.queue > k.queue
                    order by m.queue limit 1
                ) as n
            )
            select k.queue from line k limit l.share
         ) as h)
        union
        (select s.queue from scheduled s limit p_limit)
        union
        (select l.queue from in_lanes l limit 10 * p_limit)
    ) as q (queue)
    order by q.queue
    limit p_limit
$$;
