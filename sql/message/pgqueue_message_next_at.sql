create or replace function pgqueue_message_next_at(
    p_queues text[] default null,
    p_exclude_queues text[] default '{}',
    p_tasks boolean default false
) returns bigint
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Returns when a consumer that found nothing should look again (epoch ms; null: nothing is known to come): the earliest
-- dequeue_at of the waiting messages in its queues.  It skips paused queues, from which no consumer can dequeue.
-- Where that would take more than some hundred probes it returns an earlier time, at least a second from now.
-- One probe of pgqueue_message_ready_ix for each priority and queue in line, a hundred at most where all are served,
-- one of pgqueue_message_due_ix for each priority, and one of pgqueue_lane_turn_ix.  Where queues are named, one of
-- pgqueue_message_scheduled_ix for each of their priorities instead, and where they are named or excluded one of
-- pgqueue_lane_next_ix for each queue.
-- The plan must be generic: with p_tasks known, (task is null) = false becomes "task is not null", which is no key
-- of the index any more, and PostgreSQL reads the lane to its end.
declare
    v_exclude_queues text[] := p_exclude_queues || array(select q.name from pgqueue_queue q where q.paused_at is not null);
    v_head bigint;
    v_due bigint;
    v_turn bigint;
    v_now bigint := pgqueue_now();
    v_more boolean;
    v_priorities integer[];
begin
    if p_queues is null then
        -- Steps over excluded queues, with one probe for each of their priorities.
        with recursive line as (
            (select m.priority, m.queue, m.dequeue_at from pgqueue_message m
             where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
             order by m.priority desc, m.queue, m.dequeue_at, m.id limit 1)
            union all
            select n.priority, n.queue, n.dequeue_at
            from line l
            cross join lateral (
                (select m.priority, m.queue, m.dequeue_at from pgqueue_message m
                 where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                   and m.priority = l.priority and m.queue > l.queue
                 order by m.queue, m.dequeue_at, m.id limit 1)
                union all
                (select m.priority, m.queue, m.dequeue_at from pgqueue_message m
                 where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                   and m.priority < l.priority
                 order by m.priority desc, m.queue, m.dequeue_at, m.id limit 1)
                limit 1
            ) as n
        )
        select min(h.dequeue_at), count(*) = 100 into v_head, v_more
        from (select l.dequeue_at from line l where l.queue <> all (v_exclude_queues) limit 100) as h;
        if v_more then  -- one of the remaining queues may have a due message
            v_head := least(v_head, v_now + 1000);
        end if;

        with recursive level as (
            (select m.priority, m.dequeue_at from pgqueue_message m
             where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
             order by m.priority desc, m.dequeue_at limit 1)
            union all
            select n.priority, n.dequeue_at
            from level l
            cross join lateral (
                select m.priority, m.dequeue_at from pgqueue_message m
                where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
                  and m.priority < l.priority
                order by m.priority desc, m.dequeue_at limit 1
            ) as n
        )
        select array_agg(l.priority), min(l.dequeue_at) into v_priorities, v_due from level l;
        if v_exclude_queues <> '{}' and v_priorities is not null then
            -- The first hundred of each priority, less excluded queues; others may follow a hundred excluded ones.
            select min(f.dequeue_at) into v_due
            from unnest(v_priorities) as l (priority)
            cross join lateral (
                select coalesce(min(h.dequeue_at) filter (where h.queue <> all (v_exclude_queues)),
                                case when count(*) = 100 then greatest(max(h.dequeue_at), v_now + 1000) end)
                from (select m.queue, m.dequeue_at from pgqueue_message m
                      where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line
                        and m.channel is null and m.priority = l.priority
                      order by m.dequeue_at limit 100) as h
            ) as f (dequeue_at);
        end if;
    else
        with recursive level as (
            (select m.priority from pgqueue_message m
             where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
             order by m.priority desc limit 1)
            union all
            select n.priority
            from level l
            cross join lateral (
                select m.priority from pgqueue_message m
                where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                  and m.priority < l.priority
                order by m.priority desc limit 1
            ) as n
        )
        select min(h.dequeue_at) into v_head
        from level l
        cross join unnest(p_queues) as q (queue)
        cross join lateral (
            select m.dequeue_at from pgqueue_message m
            where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
              and m.priority = l.priority and m.queue = q.queue
            order by m.dequeue_at, m.id limit 1
        ) as h
        where q.queue <> all (v_exclude_queues);
        with recursive head as (
            select q.queue, h.priority, h.dequeue_at
            from unnest(p_queues) as q (queue)
            cross join lateral (
                select m.priority, m.dequeue_at from pgqueue_message m
                where m.queue = q.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line
                  and m.channel is null
                order by m.priority desc, m.dequeue_at, m.id limit 1
            ) as h
            where q.queue <> all (v_exclude_queues)
            union all
            select l.queue, h.priority, h.dequeue_at
            from head l
            cross join lateral (
                select m.priority, m.dequeue_at from pgqueue_message m
                where m.queue = l.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line
                  and m.channel is null and m.priority < l.priority
                order by m.priority desc, m.dequeue_at, m.id limit 1
            ) as h
        )
        select min(h.dequeue_at) into v_due from head h;
    end if;

    if p_queues is null and v_exclude_queues = '{}' then
        select l.next_at into v_turn from pgqueue_lane l
        where l.raw = (not p_tasks) and l.next_at is not null
        order by l.next_at limit 1;
    else
        with recursive present as (
            (select d.queue from pgqueue_lane d where p_queues is null and d.next_at is not null order by d.queue limit 1)
            union all
            select n.queue
            from present p
            cross join lateral (
                select d.queue from pgqueue_lane d where d.next_at is not null and d.queue > p.queue order by d.queue limit 1
            ) as n
        )
        select min(n.next_at) into v_turn
        from (select p.queue from present p union all select q.queue from unnest(p_queues) as q (queue)) as q
        cross join lateral (
            select l.next_at from pgqueue_lane l
            where l.queue = q.queue and l.raw = (not p_tasks) and l.next_at is not null
            order by l.next_at limit 1
        ) as n
        where q.queue <> all (v_exclude_queues);
    end if;
    return least(v_head, v_due, v_turn);
end
$$;
