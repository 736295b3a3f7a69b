create or replace function pgqueue_message_parked(
    p_limit integer default 100,
    p_after_queue text default '',
    p_after_task text default '',
    p_count integer default 1000
) returns table (p_queue text, p_task text, p_messages integer, p_unknown_since bigint, p_reason text, p_version text)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
    -- Returns the tasks of parked messages in the order of (queue, task), up to p_limit, from the one after
    -- (p_after_queue, p_after_task) on: how many messages of it are parked, counted up to p_count; since when the first
    -- of them is unknown (epoch ms; null: none is, and all are left to workers of a later version); and the reason and
    -- the version of the message which is to be tried next.
    -- One probe of pgqueue_message_parked_ix and one of pgqueue_message_unknown_ix for each, beside what it counts.
    with recursive line as (
        (select m.queue, m.task, m.last_error, m.version
         from pgqueue_message m
         where m.parked_at is not null and m.task is not null and (m.queue, m.task) > (p_after_queue, p_after_task)
         order by m.queue, m.task, m.parked_at limit 1)
        union all
        select n.queue, n.task, n.last_error, n.version
        from line l
        cross join lateral (
            select m.queue, m.task, m.last_error, m.version
            from pgqueue_message m
            where m.parked_at is not null and m.task is not null and (m.queue, m.task) > (l.queue, l.task)
            order by m.queue, m.task, m.parked_at limit 1
        ) as n
    )
    select l.queue, l.task, c.messages, u.unknown_since, l.last_error, l.version
    from (select * from line limit p_limit) as l
    cross join lateral (
        select m.unknown_since from pgqueue_message m
        where m.parked_at is not null and m.queue = l.queue and m.task = l.task
        order by m.queue, m.task, m.unknown_since limit 1
    ) as u
    cross join lateral (
        select count(*)::integer as messages
        from (select from pgqueue_message m
              where m.parked_at is not null and m.queue = l.queue and m.task = l.task
              order by m.queue, m.task, m.parked_at limit p_count) as f
    ) as c
$$;
