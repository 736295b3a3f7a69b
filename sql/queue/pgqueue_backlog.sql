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
-- bounded number of index probes, whatever is scheduled, ready or running.  In all queues together it reads the heads of
-- the first 1000 pairs of priority and queue, up to 1000 of the first 10000 lanes of channels, and the first 1000 parked
-- tasks.
-- The plan must be generic: see pgqueue_message_next_at, and (task is null) = v_raw.
declare
    v_most constant integer := 10000;
    v_raw boolean := false;
    v_now bigint := pgqueue_now();
    v_paused text[] := array(select q.name from pgqueue_queue q where q.paused_at is not null);
    v_since bigint;
    v_count bigint;
    v_oldest bigint;
begin
    -- In line.
    if p_queues is null then
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
        select count(*), min(d.since) into p_ready, p_oldest_wait_ms
        from (
            select d.since
            from (select l.priority, l.queue from line l limit 1000) as l
            cross join lateral (
                select greatest(m.dequeue_at, pgqueue_to_epoch(m.created_at)) as since from pgqueue_message m
                where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
                  and m.priority = l.priority and m.queue = l.queue and m.dequeue_at <= v_now
                order by m.dequeue_at, m.id limit v_most
            ) as d
            where l.queue <> all (v_paused)
            limit v_most
        ) as d;
        -- Due, and no dequeue has brought it into line yet.
        with recursive level as (
            (select m.priority from pgqueue_message m
             where (m.task is null) = v_raw and m.unlock_at is null and not m.in_line and m.channel is null
             order by m.priority desc limit 1)
            union all
            select n.priority
            from level l
            cross join lateral (
                select m.priority from pgqueue_message m
                where (m.task is null) = v_raw and m.unlock_at is null and not m.in_line and m.channel is null
                  and m.priority < l.priority
                order by m.priority desc limit 1
            ) as n
        )
        select count(*), min(d.dequeue_at) into v_count, v_oldest
        from (
            select d.dequeue_at
            from level l
            cross join lateral (
                select m.queue, m.dequeue_at from pgqueue_message m
                where (m.task is null) = v_raw and m.unlock_at is null and not m.in_line and m.channel is null
                  and m.priority = l.priority and m.dequeue_at <= v_now
                order by m.dequeue_at limit v_most
            ) as d
            where d.queue <> all (v_paused)
            limit v_most
        ) as d;
    else
        select count(*), min(d.since) into p_ready, p_oldest_wait_ms
        from (
            select d.since
            from pgqueue_message_levels() as l
            cross join (select distinct u.queue from unnest(p_queues) as u (queue)) as q
            cross join lateral (
                select greatest(m.dequeue_at, pgqueue_to_epoch(m.created_at)) as since from pgqueue_message m
                where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
                  and m.priority = l.p_priority and m.queue = q.queue and m.dequeue_at <= v_now
                order by m.dequeue_at, m.id limit v_most
            ) as d
            where not l.p_raw and q.queue <> all (v_paused)
            limit v_most
        ) as d;
        with recursive head as (
            select q.queue, h.priority
            from (select distinct u.queue from unnest(p_queues) as u (queue)) as q
            cross join lateral (
                select m.priority from pgqueue_message m
                where m.queue = q.queue and (m.task is null) = v_raw and m.unlock_at is null and not m.in_line
                  and m.channel is null
                order by m.priority desc limit 1
            ) as h
            where q.queue <> all (v_paused)
            union all
            select l.queue, h.priority
            from head l
            cross join lateral (
                select m.priority from pgqueue_message m
                where m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null and not m.in_line
                  and m.channel is null and m.priority < l.priority
                order by m.priority desc limit 1
            ) as h
        )
        select count(*), min(d.dequeue_at) into v_count, v_oldest
        from (
            select d.dequeue_at
            from head l
            cross join lateral (
                select m.dequeue_at from pgqueue_message m
                where m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null and not m.in_line
                  and m.channel is null and m.priority = l.priority and m.dequeue_at <= v_now
                order by m.dequeue_at limit v_most
            ) as d
            limit v_most
        ) as d;
    end if;
    p_ready := p_ready + v_count;
    v_since := least(p_oldest_wait_ms, v_oldest);

    -- In lanes: no more than their channel would let begin.  Lanes are read from the messages: without a worker nobody
    -- has moved the rows of pgqueue_arrival.
    with recursive lane as (
        (select m.channel, m.queue from pgqueue_message m
         where m.unlock_at is null and m.channel is not null order by m.channel, m.queue limit 1)
        union all
        select n.channel, n.queue
        from lane l
        cross join lateral (
            select m.channel, m.queue from pgqueue_message m
            where m.unlock_at is null and m.channel is not null and (m.channel, m.queue) > (l.channel, l.queue)
            order by m.channel, m.queue limit 1
        ) as n
    ), head as (
        select l.channel, l.queue, h.priority
        from (
            select l.channel, l.queue from (select * from lane limit 10000) as l
            where l.queue <> all (v_paused) and (p_queues is null or l.queue = any (p_queues))
            limit 1000
        ) as l
        cross join lateral (
            select m.priority from pgqueue_message m
            where m.channel = l.channel and m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null
              and m.channel is not null
            order by m.priority desc limit 1
        ) as h
        union all
        select l.channel, l.queue, h.priority
        from head l
        cross join lateral (
            select m.priority from pgqueue_message m
            where m.channel = l.channel and m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null
              and m.channel is not null and m.priority < l.priority
            order by m.priority desc limit 1
        ) as h
    )
    select coalesce(sum(least(t.waiting, t.room)), 0), min(t.since) into v_count, v_oldest
    from (
        select d.channel, count(*) as waiting, min(d.since) as since, min(d.room) as room
        from (
            select h.channel, d.since, r.room
            from head h
            cross join lateral (
                select coalesce((
                    select case
                        when c.release_at > v_now then 0
                        when c.release_interval_ms > 0 then least(1, t.room)
                        else t.room
                    end
                    from pgqueue_channel c
                    cross join lateral (
                        select c.max_concurrency - c.running
                            + coalesce((select sum(a.ended) from (
                                select e.ended from pgqueue_arrival e where e.channel = c.name limit 1000) as a), 0)
                        as room
                    ) as t
                    where c.name = h.channel), v_most) as room
            ) as r
            cross join lateral (
                select greatest(m.dequeue_at, pgqueue_to_epoch(m.created_at)) as since from pgqueue_message m
                where m.channel = h.channel and m.queue = h.queue and (m.task is null) = v_raw and m.unlock_at is null
                  and m.channel is not null and m.priority = h.priority and m.dequeue_at <= v_now
                order by m.dequeue_at, m.id limit greatest(0, least(r.room, v_most))
            ) as d
            limit v_most
        ) as d
        group by d.channel
    ) as t;
    p_ready := p_ready + v_count;
    v_since := least(v_since, v_oldest);

    -- Held: those whose lock has run out are to be taken over.
    select count(*) filter (where h.unlock_at <= v_now), min(h.unlock_at) filter (where h.unlock_at <= v_now),
           count(*) filter (where h.unlock_at > v_now)
    into v_count, v_oldest, p_running
    from (
        select m.unlock_at, m.queue, m.task from pgqueue_message m
        where m.unlock_at is not null order by m.unlock_at limit v_most
    ) as h
    where h.task is not null and (p_queues is null or h.queue = any (p_queues));
    p_ready := p_ready + v_count;
    v_since := least(v_since, v_oldest);

    -- Quarantined messages, and waits for others that are over or have to be looked at.
    select count(*), min(o.since) into v_count, v_oldest
    from (
        (select m.alone_at as since, m.queue from pgqueue_message m
         where m.alone_at is not null and m.task is not null and m.unlock_at is null
         order by m.lost, m.alone_at, m.id limit 1000)
        union all
        (select m.check_at, m.queue from pgqueue_message m
         where m.check_at is not null and m.check_at <= v_now order by m.check_at limit 1000)
        union all
        (select e.look_at, null from pgqueue_ended e order by e.look_at, e.id limit 1000)
    ) as o
    where o.since <= v_now
      and (o.queue is null or o.queue <> all (v_paused) and (p_queues is null or o.queue = any (p_queues)));
    p_ready := p_ready + v_count;
    v_since := least(v_since, v_oldest);

    -- Parked.
    select count(*), min(coalesce(k.p_unknown_since, v_now)) into v_count, v_oldest
    from pgqueue_message_parked(1000, p_count => 1) as k
    where k.p_queue <> all (v_paused) and (p_queues is null or k.p_queue = any (p_queues));
    p_ready := least(p_ready + v_count, v_most);
    v_since := least(v_since, v_oldest);
    p_oldest_wait_ms := case when v_since is not null then greatest(0, v_now - v_since) end;
end
$$;
