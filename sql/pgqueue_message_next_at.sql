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
    -- One probe of pgqueue_message_ready_ix for each (queue, priority) present.
    -- The plan must be generic: with p_tasks known, (task is null) = false becomes "task is not null", which is no key
    -- of the index any more, and the lane is read to its end.
    with recursive head as (
        select q.queue, h.priority, h.dequeue_at
        from unnest(coalesce(p_queues, array(select pgqueue_message_queues()))) as q (queue)
        cross join lateral (
            select m.priority, m.dequeue_at from pgqueue_message m
            where m.queue = q.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
            order by m.priority desc, m.dequeue_at, m.id limit 1
        ) as h
        where q.queue <> all (p_exclude_queues)
          and q.queue <> all (array(select s.name from pgqueue_queue s where s.paused_at is not null))
        union all
        select l.queue, h.priority, h.dequeue_at
        from head l
        cross join lateral (
            select m.priority, m.dequeue_at from pgqueue_message m
            where m.queue = l.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
              and m.priority < l.priority
            order by m.priority desc, m.dequeue_at, m.id limit 1
        ) as h
    )
    select min(h.dequeue_at) from head h
$$;
