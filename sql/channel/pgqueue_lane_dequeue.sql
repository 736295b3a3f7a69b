create or replace function pgqueue_lane_dequeue(
    p_queues text[],
    p_limit integer,
    p_lock_ms bigint,
    p_worker text,
    p_tasks boolean,
    p_channel text default null,
    p_exclude_queues text[] default '{}'
) returns setof pgqueue_message
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Takes up to p_limit ready messages of channels and locks them.  Lanes take turns: the lane whose last turn is longest
-- ago comes first, gives up to five messages a turn (more where few lanes are armed), and goes back to the end of the
-- line.  Inside a lane the order is the same as without channels: highest priority first, then dequeue_at, then id.
-- p_queues null: all queues, except p_exclude_queues.  With p_channel only this channel.
-- pgqueue_message_dequeue calls this; consumers do not.  Never waits: it skips locked lanes and channels.
-- Plans: a condition that names its rows (... = any (v_channels)) becomes index probes and a hash; without nested loops
-- the planner cannot read all channels instead.  Where a loop is wanted, the join is lateral.
declare
    v_now bigint := pgqueue_now();
    v_clock timestamptz := pgqueue_clock();
    v_left integer := p_limit;
    v_turn integer := 5;
    v_turns integer;
    v_passed boolean;
    v_taken integer;
    v_room integer;
    v_channels text[];
    v_queues text[];
    v_priorities integer[];
    v_rooms integer[];
    v_released text[];
    v_turned timestamptz;
    v_served text[];  -- null: all
    v_further boolean := false;
    v_line refcursor;
    v_next record;
    v_lane record;
begin
    if p_queues is not null then
        v_served := array(
            select q.queue from unnest(p_queues) as q (queue) where q.queue <> all (p_exclude_queues) order by random());
    elsif p_exclude_queues <> '{}' then
        -- The queues of the first lanes in line, which is enough unless those are excluded or locked by other sessions.
        v_served := array(
            select f.queue
            from (select d.queue from pgqueue_lane d where d.raw = (not p_tasks) and d.next_at <= v_now
                  order by d.next_at, d.turned_at nulls first limit 1000) as f
            where f.queue <> all (p_exclude_queues)
            group by f.queue
            order by random());
        v_further := true;
    end if;

    loop
        v_channels := '{}';
        v_queues := '{}';
        v_priorities := '{}';
        v_rooms := '{}';
        v_released := '{}';
        v_turns := 0;
        v_passed := false;
        -- The line, read row by row, so that no lane is locked without having its turn.
        if v_served is null then
            open v_line for
                select d.channel, d.queue from pgqueue_lane d
                where d.raw = (not p_tasks) and d.next_at <= v_now
                order by d.next_at, d.turned_at nulls first
                for no key update skip locked;
        else
            open v_line for
                select l.channel, q.queue
                from unnest(v_served) as q (queue)
                cross join lateral (
                    select d.channel from pgqueue_lane d
                    where d.queue = q.queue and d.raw = (not p_tasks) and d.next_at <= v_now
                      and d.channel = coalesce(p_channel, d.channel)
                    order by d.next_at, d.turned_at nulls first
                    limit case when p_channel is not null then 1 end
                    for no key update skip locked
                ) as l;
        end if;
        loop
            fetch v_line into v_next;
            exit when not found;
            select v_next.channel as channel, v_next.queue as queue, c.*, head.priority, head.dequeue_at
            into v_lane
            from (
                select d.max_concurrency - d.running as room, d.release_interval_ms, d.release_at, d.released_at
                from pgqueue_channel d
                where d.name = v_next.channel
                for no key update skip locked
            ) as c
            left join lateral (
                select m.priority, m.dequeue_at from pgqueue_message m
                where m.channel = v_next.channel and m.queue = v_next.queue and (m.task is null) = (not p_tasks)
                  and m.unlock_at is null
                order by m.priority desc, m.dequeue_at, m.id limit 1
            ) as head on true;
            continue when not found;
            -- A channel with lanes in several queues has one turn a round, because its lanes share its limits.
            if v_lane.channel = any (v_channels) then
                v_passed := true;
                continue;
            end if;
            if v_lane.dequeue_at > v_now then
                v_lane.priority := (
                    with recursive head as (
                        select v_lane.priority::integer as priority, v_lane.dequeue_at as dequeue_at
                        union all
                        (select n.priority::integer, n.dequeue_at from head h
                         cross join lateral (
                            select m.priority, m.dequeue_at from pgqueue_message m
                            where m.channel = v_lane.channel and m.queue = v_lane.queue
                              and (m.task is null) = (not p_tasks) and m.unlock_at is null and m.priority < h.priority
                            order by m.priority desc, m.dequeue_at, m.id limit 1
                         ) as n
                         where h.dequeue_at > v_now)
                    )
                    select h.priority from head h where h.dequeue_at <= v_now);
            end if;
            v_room := greatest(0, case
                when v_lane.priority is null or v_lane.release_at > v_now then 0
                when v_lane.release_interval_ms > 0 then least(1, coalesce(v_lane.room, 1))
                else coalesce(v_lane.room, p_limit)  -- negative, where the limit was lowered below what runs
            end);
            if v_lane.released_at is not null then
                v_released := v_released || v_lane.channel;
            end if;
            v_channels := v_channels || v_lane.channel;
            v_queues := v_queues || v_lane.queue;
            v_priorities := v_priorities || coalesce(v_lane.priority, 0);
            v_rooms := v_rooms || v_room;
            v_turns := v_turns + least(v_room, v_turn);
            exit when v_turns >= v_left;
        end loop;
        close v_line;
        if v_channels = '{}' and v_further then
            v_further := false;
            v_served := array(
                with recursive present as (
                    (select d.queue from pgqueue_lane d where d.next_at is not null order by d.queue limit 1)
                    union all
                    select n.queue
                    from present p
                    cross join lateral (
                        select d.queue from pgqueue_lane d where d.next_at is not null and d.queue > p.queue
                        order by d.queue limit 1
                    ) as n
                )
                select p.queue from present p where p.queue <> all (p_exclude_queues) order by random());
            continue;
        end if;
        exit when v_channels = '{}';
        v_further := false;
        if v_turns < v_left then  -- no other lane is in line
            v_turn := greatest(v_turn, ceil(v_left::numeric / cardinality(v_channels)));
        end if;

        return query
        with taken as (
            update pgqueue_message u
            set unlock_at = v_now + p_lock_ms, locked_at = v_clock, worker = p_worker,
                attempt = least(u.attempt, 1999999999) + 1
            where u.id = any (array(
                select n.id
                from unnest(v_channels, v_queues, v_priorities, v_rooms) as k (channel, queue, priority, room)
                cross join lateral (
                    select m.id from pgqueue_message m
                    where m.channel = k.channel and m.queue = k.queue and (m.task is null) = (not p_tasks)
                      and m.unlock_at is null and m.priority = k.priority and m.dequeue_at <= v_now
                    order by m.dequeue_at, m.id
                    limit least(k.room, v_turn)
                    for no key update skip locked
                ) as n
                where k.room > 0
                limit v_left
            ))
            returning u.*
        ), counts as (
            select t.channel, count(*)::integer as taken from taken t group by t.channel
        ), counted as (
            update pgqueue_channel c
            set running = least(c.running + n.taken, 1000000000),
                release_at = case when c.release_interval_ms > 0 then v_now + c.release_interval_ms end
            from counts n where n.channel = c.name and c.name = any (v_channels)
        )
        select * from taken t order by t.priority desc, t.dequeue_at, t.id;
        get diagnostics v_taken = row_count;
        v_left := v_left - v_taken;

        v_turned := clock_timestamp();  -- also where the clock of the queue stands still
        -- The next turn: at once where more is due, else when the first message is due, else when an attempt has ended.
        update pgqueue_lane l
        set turned_at = v_turned + k.place * interval '1 microsecond',
            parked = (c.running >= c.max_concurrency) is true,
            next_at = case
                when c.running >= c.max_concurrency or head.dequeue_at is null then null
                when head.dequeue_at <= v_now then greatest(v_now, c.release_at)
                else greatest(c.release_at, (
                    with recursive later as (
                        select head.priority::integer as priority, head.dequeue_at
                        union all
                        (select n.priority::integer, n.dequeue_at from later h
                         cross join lateral (
                            select m.priority, m.dequeue_at from pgqueue_message m
                            where m.channel = k.channel and m.queue = k.queue and (m.task is null) = (not p_tasks)
                              and m.unlock_at is null and m.priority < h.priority
                            order by m.priority desc, m.dequeue_at, m.id limit 1
                         ) as n)
                    )
                    select greatest(v_now, min(h.dequeue_at)) from later h))
            end
        from unnest(v_channels, v_queues) with ordinality as k (channel, queue, place)
        join pgqueue_channel c on c.name = k.channel
        left join lateral (
            select m.priority, m.dequeue_at from pgqueue_message m
            where (c.running >= c.max_concurrency) is not true
              and m.channel = k.channel and m.queue = k.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
            order by m.priority desc, m.dequeue_at, m.id limit 1
        ) as head on true
        where l.channel = k.channel and l.queue = k.queue and l.raw = (not p_tasks)
          and l.channel = any (v_channels) and c.name = any (v_channels);

        if v_released <> '{}' then
            perform pgqueue_channel_prune(c.name) from pgqueue_channel c where c.name = any (v_released) and c.running = 0;
        end if;
        -- A round of lanes without messages is not the last one where it skipped other lanes of their channels: it has
        -- taken its lanes out of the line, and the next round begins with the skipped ones.
        exit when v_left <= 0 or v_taken = 0 and (v_turns > 0 or not v_passed);
    end loop;
end
$$;
