create or replace function pgqueue_backlog(
    p_queues text[] default null,
    out p_ready bigint,
    out p_oldest_wait_ms bigint,
    out p_running bigint
)
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Returns what there is to do for workers of these queues (null: all), for an autoscaler, which asks often.
--   p_ready           tasks that a worker could begin now: due, in a queue that is not paused, and within the limit of
--                     their channel.  Tasks whose worker went away, and waiting ones that have to be looked at, count too.
--                     Of parked messages one counts for each task: a worker finds out whether it knows it
--   p_oldest_wait_ms  how long the first of them has been waiting; null: nothing is ready
--   p_running         tasks that workers hold
-- Raw messages do not count.  Counts end at 10000, which means "at least".  So does everything else here: it costs a
-- bounded number of index probes, whatever is scheduled, ready, running or paused.  In all queues together it reads the
-- heads of the first 1000 pairs of priority and queue, of channels up to 10000 lanes with new events, 1000 others and
-- 2000 pairs of lane and priority, and 1000 parked tasks.  Where it has met such a limit there may be more behind it:
-- p_ready and p_running are never 0 then, so that a worker looks.
-- Probes pgqueue_message_ready_ix, pgqueue_message_due_ix, pgqueue_message_scheduled_ix, pgqueue_message_lane_ix,
-- pgqueue_message_locked_ix, the indexes of quarantined, waiting and parked messages, pgqueue_lane, pgqueue_channel
-- and pgqueue_arrival.
-- The plan must be generic: see pgqueue_message_next_at, and (task is null) = v_raw.
declare
    v_most constant integer := 10000;
    v_raw boolean := false;
    v_now bigint := pgqueue_now();
    v_paused text[] := array(select q.name from pgqueue_queue q where q.paused_at is not null);
    v_served text[];  -- null: all
    v_priorities integer[];
    v_queues text[];
    v_channels text[];
    v_since bigint;
    v_count bigint;
    v_oldest bigint;
    v_more boolean := false;  -- whether a limit was met
begin
    if p_queues is not null then
        v_served := array(select distinct u.queue from unnest(p_queues) as u (queue) where u.queue <> all (v_paused));
    end if;

    -- In line.
    if v_served is null then
        -- Steps over paused queues, with one probe for each of their priorities.
        with recursive line as (
            (select m.priority, m.queue from pgqueue_message m
             where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
             order by m.priority desc, m.queue limit 1)
            union all
            select n.priority, n.queue
            from line l
            cross join lateral (
                (select m.priority, m.queue from pgqueue_message m
                 where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
                   and m.priority = l.priority and m.queue > l.queue
                 order by m.queue limit 1)
                union all
                (select m.priority, m.queue from pgqueue_message m
                 where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
                   and m.priority < l.priority
                 order by m.priority desc, m.queue limit 1)
                limit 1
            ) as n
        )
        select array_agg(l.priority), array_agg(l.queue), count(*) = 1000 into v_priorities, v_queues, v_more
        from (select l.priority, l.queue from line l where l.queue <> all (v_paused) limit 1000) as l;
    else
        select array_agg(l.p_priority), array_agg(q.queue) into v_priorities, v_queues
        from pgqueue_message_levels() as l
        cross join unnest(v_served) as q (queue)
        where not l.p_raw;
    end if;
    select count(*), min(d.since) into p_ready, v_since
    from (
        select d.since
        from unnest(v_priorities, v_queues) as l (priority, queue)
        cross join lateral (
            select greatest(m.dequeue_at, pgqueue_to_epoch(m.created_at)) as since from pgqueue_message m
            where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
              and m.priority = l.priority and m.queue = l.queue and m.dequeue_at <= v_now
            order by m.dequeue_at, m.id limit v_most
        ) as d
        limit v_most
    ) as d;

    -- Due, and no dequeue has brought it into line yet: first the priorities that have such messages in any queue.
    with recursive level as (
        (select m.priority, m.dequeue_at from pgqueue_message m
         where (m.task is null) = v_raw and m.unlock_at is null and not m.in_line and m.channel is null
         order by m.priority desc, m.dequeue_at limit 1)
        union all
        select n.priority, n.dequeue_at
        from level l
        cross join lateral (
            select m.priority, m.dequeue_at from pgqueue_message m
            where (m.task is null) = v_raw and m.unlock_at is null and not m.in_line and m.channel is null
              and m.priority < l.priority
            order by m.priority desc, m.dequeue_at limit 1
        ) as n
    )
    select array_agg(l.priority) into v_priorities from level l where l.dequeue_at <= v_now;
    if v_priorities is not null then
        v_queues := v_served;
        if v_served is null then
            with recursive present as (
                (select m.queue from pgqueue_message m
                 where m.unlock_at is null and not m.in_line and m.channel is null
                 order by m.queue limit 1)
                union all
                select n.queue
                from present p
                cross join lateral (
                    select m.queue from pgqueue_message m
                    where m.unlock_at is null and not m.in_line and m.channel is null and m.queue > p.queue
                    order by m.queue limit 1
                ) as n
            )
            select array_agg(p.queue), count(*) = 1000 or v_more into v_queues, v_more
            from (select p.queue from present p where p.queue <> all (v_paused) limit 1000) as p;
        end if;
        v_more := v_more or coalesce(cardinality(v_queues) * cardinality(v_priorities) > v_most, false);
        select count(*), min(d.dequeue_at) into v_count, v_oldest
        from (
            select d.dequeue_at
            from (select l.priority, q.queue
                  from unnest(v_priorities) as l (priority) cross join unnest(v_queues) as q (queue) limit v_most) as l
            cross join lateral (
                select m.dequeue_at from pgqueue_message m
                where m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null and not m.in_line
                  and m.channel is null and m.priority = l.priority and m.dequeue_at <= v_now
                order by m.dequeue_at, m.id limit v_most
            ) as d
            limit v_most
        ) as d;
        p_ready := p_ready + v_count;
        v_since := least(v_since, v_oldest);
    end if;

    -- In lanes: those that workers have armed, and, because nobody may have moved the rows of pgqueue_arrival, those with
    -- such rows and the other halted lanes of their channels.
    with recursive arrival as (
        (select a.channel, a.queue, a.raw from pgqueue_arrival a order by a.channel, a.queue, a.raw limit 1)
        union all
        select n.channel, n.queue, n.raw
        from arrival p
        cross join lateral (
            select a.channel, a.queue, a.raw from pgqueue_arrival a
            where (a.channel, a.queue, a.raw) > (p.channel, p.queue, p.raw)
            order by a.channel, a.queue, a.raw limit 1
        ) as n
    ), recent as (
        select a.channel, a.queue, a.raw from arrival a limit v_most
    ), present as (
        (select d.queue from pgqueue_lane d
         where v_served is null and d.next_at is not null and exists (
             select from pgqueue_lane l where l.raw = v_raw and l.next_at is not null and l.next_at <= v_now)
         order by d.queue limit 1)
        union all
        select n.queue
        from present p
        cross join lateral (
            select d.queue from pgqueue_lane d where d.next_at is not null and d.queue > p.queue order by d.queue limit 1
        ) as n
    ), queue as (
        (select p.queue from present p where p.queue <> all (v_paused) limit 1000)
        union all
        select q.queue from unnest(v_served) as q (queue)
    ), lane as (
        (select l.channel, q.queue
         from queue q
         cross join lateral (
             select d.channel from pgqueue_lane d
             where d.queue = q.queue and d.raw = v_raw and d.next_at is not null and d.next_at <= v_now
             order by d.next_at, d.turned_at nulls first limit 1000
         ) as l
         limit 1000)
        union
        (select r.channel, r.queue from recent r
         where r.raw = v_raw and r.queue <> all (v_paused) and (v_served is null or r.queue = any (v_served))
         limit 1000)
        union
        (select r.channel, l.queue
         from (select distinct r.channel from recent r) as r
         cross join lateral (
             select d.queue, d.raw, d.parked from pgqueue_lane d where d.channel = r.channel order by d.queue limit 1000
         ) as l
         where l.parked and l.raw = v_raw and l.queue <> all (v_paused)
           and (v_served is null or l.queue = any (v_served))
         limit 1000)
    )
    select array_agg(l.channel), array_agg(l.queue),
           v_more or count(*) = 1000 or (select count(*) = v_most from recent)
               or (v_served is null and (select count(*) = 1000 from queue))
    into v_channels, v_queues, v_more
    from (select l.channel, l.queue from lane l limit 1000) as l;
    -- Of each no more than its channel would let begin.
    with recursive head as (
        select l.channel, l.queue, r.room, h.priority
        from unnest(v_channels, v_queues) as l (channel, queue)
        cross join lateral (
            select coalesce((
                select case
                    when c.release_at > v_now then 0
                    when c.release_interval_ms > 0 then least(1, t.room)
                    else t.room
                end
                from pgqueue_channel c
                cross join lateral (
                    -- Behind a hundred events there may be the end of an attempt.
                    select greatest(c.max_concurrency - c.running + coalesce(sum(a.ended), 0),
                                    case when count(*) = 100 then least(c.max_concurrency, 1) end) as room
                    from (select e.ended from pgqueue_arrival e
                          where e.channel = c.name and c.max_concurrency is not null limit 100) as a
                ) as t
                where c.name = l.channel), v_most) as room
        ) as r
        cross join lateral (
            select m.priority from pgqueue_message m
            where m.channel = l.channel and m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null
              and m.channel is not null
            order by m.priority desc limit 1
        ) as h
        where r.room > 0
        union all
        select l.channel, l.queue, l.room, h.priority
        from head l
        cross join lateral (
            select m.priority from pgqueue_message m
            where m.channel = l.channel and m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null
              and m.channel is not null and m.priority < l.priority
            order by m.priority desc limit 1
        ) as h
    )
    select coalesce(sum(least(t.waiting, t.room)), 0), min(t.since),
           v_more or (select count(*) = 2000 from (select from head limit 2000) as h)
    into v_count, v_oldest, v_more
    from (
        select d.channel, count(*) as waiting, min(d.since) as since, min(d.room) as room
        from (
            select h.channel, h.room, d.since
            from (select h.channel, h.queue, h.room, h.priority from head h limit 2000) as h
            cross join lateral (
                select greatest(m.dequeue_at, pgqueue_to_epoch(m.created_at)) as since from pgqueue_message m
                where m.channel = h.channel and m.queue = h.queue and (m.task is null) = v_raw and m.unlock_at is null
                  and m.channel is not null and m.priority = h.priority and m.dequeue_at <= v_now
                order by m.dequeue_at, m.id limit least(h.room, v_most)
            ) as d
            limit v_most
        ) as d
        group by d.channel
    ) as t;
    p_ready := p_ready + v_count;
    v_since := least(v_since, v_oldest);

    -- Held: those whose lock has run out are to be taken over.
    select count(*) filter (where h.served), min(h.unlock_at) filter (where h.served), v_more or count(*) = v_most
    into v_count, v_oldest, v_more
    from (
        select m.unlock_at, m.task is not null and (v_served is null or m.queue = any (p_queues)) as served
        from pgqueue_message m
        where m.unlock_at is not null and m.unlock_at <= v_now order by m.unlock_at limit v_most
    ) as h;
    p_ready := p_ready + v_count;
    v_since := least(v_since, v_oldest);
    select greatest(count(*) filter (where h.served), (count(*) = v_most)::integer) into p_running
    from (
        select m.task is not null and (v_served is null or m.queue = any (p_queues)) as served
        from pgqueue_message m
        where m.unlock_at is not null and m.unlock_at > v_now order by m.unlock_at limit v_most
    ) as h;

    -- Quarantined messages, and waits for others that are over or have to be looked at.
    select count(*) filter (where o.served), min(o.since) filter (where o.served), v_more or count(*) >= 1000
    into v_count, v_oldest, v_more
    from (
        select o.since, o.since <= v_now and (o.queue is null or o.queue <> all (v_paused)
                                              and (v_served is null or o.queue = any (v_served))) as served
        from (
            (select case when m.alone_at <= v_now then least(v_now, greatest(m.alone_at, pgqueue_to_epoch(m.created_at)))
                         else m.alone_at end as since,
                    m.queue
             from pgqueue_message m
             where m.alone_at is not null and m.task is not null and m.unlock_at is null
             order by m.lost, m.alone_at, m.id limit 1000)
            union all
            (select m.check_at, m.queue from pgqueue_message m
             where m.check_at is not null and m.check_at <= v_now order by m.check_at limit 1000)
            union all
            -- Where the clock was ahead, it is looked at now (pgqueue_message_settle).
            (select case when e.look_at > v_now + 60000 then v_now else e.look_at end, null
             from pgqueue_ended e order by e.look_at, e.id limit 1000)
        ) as o
    ) as o;
    p_ready := p_ready + v_count;
    v_since := least(v_since, v_oldest);

    -- Parked.
    select count(*) filter (where k.served), min(coalesce(k.unknown_since, v_now)) filter (where k.served),
           v_more or count(*) = 1000
    into v_count, v_oldest, v_more
    from (
        select k.p_unknown_since as unknown_since,
               k.p_queue <> all (v_paused) and (v_served is null or k.p_queue = any (v_served)) as served
        from pgqueue_message_parked(1000, p_count => 1) as k
    ) as k;
    p_ready := least(p_ready + v_count, v_most);
    v_since := least(v_since, v_oldest);

    if v_more and p_ready = 0 then
        p_ready := 1;
        v_since := v_now;
    end if;
    p_oldest_wait_ms := case when v_since is not null then greatest(0, v_now - greatest(v_since, 0)) end;
end
$$;
