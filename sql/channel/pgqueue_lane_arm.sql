create or replace function pgqueue_lane_arm(p_limit integer default 10000, p_channel text default null) returns integer
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
-- Moves the rows of pgqueue_arrival into pgqueue_lane and pgqueue_channel, and returns how many rows it has moved.
-- Takes up to 1000 rows from each of up to 1000 lanes, so that a flood into one delays no other.  With p_channel only
-- the lanes of this one.
-- pgqueue_message_dequeue calls this; clients need not.  Never waits: rows that another session has locked are left for
-- the next call.  Plans: as in pgqueue_lane_dequeue.
declare
    v_now bigint := pgqueue_now();
    v_channels text[];
    v_queues text[];
    v_raws boolean[];
    v_count integer;
    v_names text[];
    v_released text[];
    v_name text;
    v_lane record;
    v_lock_timeout text := current_setting('lock_timeout');
begin
    -- The lanes with arrivals: one probe for each (a loose index scan), however many rows they have.
    with recursive present as (
        (select a.channel, a.queue, a.raw from pgqueue_arrival a where a.channel >= coalesce(p_channel, '')
         order by a.channel, a.queue, a.raw limit 1)
        union all
        select n.channel, n.queue, n.raw
        from present p
        cross join lateral (
            select a.channel, a.queue, a.raw from pgqueue_arrival a
            where (a.channel, a.queue, a.raw) > (p.channel, p.queue, p.raw)
            order by a.channel, a.queue, a.raw limit 1
        ) as n
        where p.channel = coalesce(p_channel, p.channel)
    )
    select array_agg(s.channel), array_agg(s.queue), array_agg(s.raw)
    into v_channels, v_queues, v_raws
    from (
        select p.channel, p.queue, p.raw from present p where p.channel = coalesce(p_channel, p.channel) limit 1000
    ) as s;
    if v_channels is null then
        return 0;
    end if;

    if exists (
        select from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
        where (select true from pgqueue_lane l where l.channel = u.channel and l.queue = u.queue and l.raw = u.raw) is null
           or (select true from pgqueue_channel c where c.name = u.channel) is null
    ) then
        -- New lanes, and those whose channel was removed while they were made.  The holder of a channel's advisory lock
        -- makes its rows, and the others go on without them.  A session may insert a row without that lock
        -- (pgqueue_channel_set after a wait), so the wait for it is short.
        begin
            perform set_config('lock_timeout', '10ms', true);
            insert into pgqueue_channel (name)
            select n.name from (
                select distinct u.channel from unnest(v_channels) as u (channel)
                where (select true from pgqueue_channel c where c.name = u.channel) is null
            ) as n (name)
            where pgqueue_advisory_lock('channel ' || n.name)
            on conflict do nothing;
            insert into pgqueue_lane (channel, queue, raw)
            select u.channel, u.queue, u.raw from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
            where (select true from pgqueue_lane l where l.channel = u.channel and l.queue = u.queue and l.raw = u.raw) is null
              and (select true from pgqueue_channel c where c.name = u.channel)
              and pgqueue_advisory_lock('channel ' || u.channel)
            on conflict do nothing;
            perform set_config('lock_timeout', v_lock_timeout, true);
        exception
            when lock_not_available then  -- the setting is rolled back
                null;
        end;
        -- The holder of that lock may be a login without rights to the queue: then no session makes those rows,
        -- and this one need not wait; else the wait is short.  In random order, so that no lane blocks the others.
        for v_lane in
            select u.channel, u.queue, u.raw from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
            where (select true from pgqueue_lane l where l.channel = u.channel and l.queue = u.queue and l.raw = u.raw) is null
               or (select true from pgqueue_channel c where c.name = u.channel) is null
            order by random()
            limit 10
        loop
            begin
                perform set_config('lock_timeout', '10ms', true);
                insert into pgqueue_channel (name) values (v_lane.channel) on conflict do nothing;
                insert into pgqueue_lane (channel, queue, raw) values (v_lane.channel, v_lane.queue, v_lane.raw)
                on conflict do nothing;
                perform set_config('lock_timeout', v_lock_timeout, true);
            exception
                when lock_not_available then  -- the setting is rolled back
                    exit;
            end;
        end loop;
    end if;

    -- The session that holds the rows of a channel and a lane may write them and take their arrivals.
    select array_agg(s.channel), array_agg(s.queue), array_agg(s.raw),
           array_agg(s.channel) filter (where s.released_at is not null)
    into v_channels, v_queues, v_raws, v_released
    from (
        select u.channel, u.queue, u.raw, c.released_at
        from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
        cross join lateral (
            select from pgqueue_lane d where d.channel = u.channel and d.queue = u.queue and d.raw = u.raw
            for no key update skip locked
        ) as l
        cross join lateral (
            select d.released_at from pgqueue_channel d where d.name = u.channel for no key update skip locked
        ) as c
    ) as s;
    if v_channels is null then
        return 0;
    end if;

    with gone as (
        delete from pgqueue_arrival d
        where d.ctid = any (array(
            select n.ctid
            from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
            cross join lateral (
                select a.ctid from pgqueue_arrival a
                where a.channel = u.channel and a.queue = u.queue and a.raw = u.raw
                order by a.channel, a.queue, a.raw, a.id
                limit 1000
            ) as n
            limit p_limit
        ))
        returning d.channel, d.queue, d.raw, d.dequeue_at, d.ended
    ), sums as (
        select g.channel, g.queue, g.raw, min(g.dequeue_at) as dequeue_at, count(*)::integer as rows,
               sum(sum(g.ended)) over (partition by g.channel)::integer as ended,  -- in all lanes of the channel
               row_number() over (partition by g.channel) as number
        from gone g group by g.channel, g.queue, g.raw
    ), counted as (
        update pgqueue_channel c set running = greatest(-1000000000, least(c.running - s.ended, 1000000000))
        from sums s where s.channel = c.name and c.name = any (v_channels) and s.number = 1 and s.ended <> 0
    ), armed as (
        update pgqueue_lane l
        set parked = false,
            next_at = case when l.parked then v_now else least(l.next_at, greatest(s.dequeue_at, v_now)) end
        from sums s
        join pgqueue_channel c on c.name = s.channel
        where l.channel = s.channel and l.queue = s.queue and l.raw = s.raw
          and l.channel = any (v_channels) and c.name = any (v_channels)
          and (l.parked and (c.running - s.ended < c.max_concurrency) is not false
               or not l.parked and s.dequeue_at is not null
                  and greatest(s.dequeue_at, v_now) < coalesce(l.next_at, 9223372036854775807))
    )
    select coalesce(sum(s.rows), 0), array(select n.channel from sums n where n.number = 1) into v_count, v_names from sums s;

    -- Other lanes of these channels may wait for the same end, and released channels for their last one.
    insert into pgqueue_arrival (channel, queue, raw, dequeue_at)
    select l.channel, l.queue, l.raw, v_now
    from pgqueue_lane l
    where l.channel = any (v_names) and l.parked
      and (select (c.running < c.max_concurrency) is not false from pgqueue_channel c where c.name = l.channel)
      and (select true from pgqueue_arrival a
           where a.channel = l.channel and a.queue = l.queue and a.raw = l.raw and a.dequeue_at is not null limit 1) is null;
    if found then
        perform pgqueue_lane_arm(p_limit, p_channel);
    end if;
    for v_name in
        select c.name from pgqueue_channel c where c.name = any (v_released) and c.running = 0
    loop
        perform pgqueue_channel_prune(v_name);
    end loop;
    return v_count;
end
$$;
