create or replace function pgqueue_message_next_at(
    p_queues text[] default null,
    p_exclude_queues text[] default '{}',
    p_tasks boolean default false
) returns bigint
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
    -- The earliest dequeue_at (epoch ms) of the messages that wait in the queues, or null: until then a consumer that
    -- found nothing may sleep.  Paused queues are passed over: nobody could dequeue what is due there.
    -- One probe of pgqueue_message_ready_ix for each (queue, priority) present, and one of pgqueue_lane_next_ix for the
    -- lanes of each queue.
    -- The plan must be generic: with p_tasks known, (task is null) = false becomes "task is not null", which is no key
    -- of the index any more, and the lane is read to its end.
    with recursive served as (
        select q.queue from unnest(coalesce(p_queues, array(select pgqueue_message_queues()))) as q (queue)
        where q.queue <> all (p_exclude_queues)
          and q.queue <> all (array(select s.name from pgqueue_queue s where s.paused_at is not null))
    ), head as (
        select q.queue, h.priority, h.dequeue_at
        from served q
        cross join lateral (
            select m.priority, m.dequeue_at from pgqueue_message m
            where m.queue = q.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
              and m.channel is null
            order by m.priority desc, m.dequeue_at, m.id limit 1
        ) as h
        union all
        select l.queue, h.priority, h.dequeue_at
        from head l
        cross join lateral (
            select m.priority, m.dequeue_at from pgqueue_message m
            where m.queue = l.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
              and m.channel is null and m.priority < l.priority
            order by m.priority desc, m.dequeue_at, m.id limit 1
        ) as h
    )
    select least(
        (select min(h.dequeue_at) from head h),
        (select min(n.next_at)
         from served q
         cross join lateral (
            select l.next_at from pgqueue_lane l
            where l.queue = q.queue and l.raw = (not p_tasks) and l.next_at is not null
            order by l.next_at limit 1
         ) as n))
$$;
