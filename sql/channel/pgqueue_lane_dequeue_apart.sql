create or replace function pgqueue_lane_dequeue_apart(
    p_queues text[],
    p_limit integer,
    p_lock_ms bigint,
    p_worker text,
    p_tasks boolean,
    p_exclude_queues text[] default '{}'
) returns setof pgqueue_message
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Takes messages of channels as pgqueue_lane_dequeue does, for a transaction that goes on: its locks last until its
-- end, and no other consumer gets messages of those channels meanwhile.  So it takes lanes one by one: those in line
-- and those with arrivals, in any order.  It moves the arrivals of that channel alone (pgqueue_lane_arm), and when it
-- finds nothing to take, a subtransaction gives all locks of the channel back.  It tries a hundred lanes of each kind.
-- pgqueue_message_dequeue calls this; consumers do not.
declare
    v_now bigint := pgqueue_now();
    v_left integer := p_limit;
    v_taken integer;
    v_lane record;
begin
    for v_lane in
        select c.channel, c.queue
        from (
            (select d.channel, d.queue
             from pgqueue_lane d
             where p_queues is null and d.raw = (not p_tasks) and d.next_at <= v_now and d.queue <> all (p_exclude_queues)
             order by d.next_at, d.turned_at nulls first
             limit 100)
            union all
            (select l.channel, q.queue
             from (select u.queue from unnest(p_queues) as u (queue) order by random()) as q
             cross join lateral (
                select d.channel from pgqueue_lane d
                where d.queue = q.queue and d.raw = (not p_tasks) and d.next_at <= v_now
                order by d.next_at, d.turned_at nulls first
                limit 100
             ) as l
             where q.queue <> all (p_exclude_queues)
             limit 100)
            union all
            (with recursive present as (
                (select a.channel, a.queue, a.raw from pgqueue_arrival a order by a.channel, a.queue, a.raw limit 1)
                union all
                select n.channel, n.queue, n.raw
                from present p
                cross join lateral (
                    select a.channel, a.queue, a.raw from pgqueue_arrival a
                    where (a.channel, a.queue, a.raw) > (p.channel, p.queue, p.raw)
                    order by a.channel, a.queue, a.raw limit 1
                ) as n
             )
             select p.channel, p.queue
             from present p
             where (p_queues is null or p.queue = any (p_queues)) and p.queue <> all (p_exclude_queues)
               and p.raw = (not p_tasks)
             limit 100)
        ) as c (channel, queue)
        order by random()
    loop
        begin
            perform pgqueue_lane_arm(p_channel => v_lane.channel);
            return query
            select * from pgqueue_lane_dequeue(
                array[v_lane.queue], v_left, p_lock_ms, p_worker, p_tasks, p_channel => v_lane.channel)
            where (select true from pgqueue_message where false) is null;  -- as in pgqueue_message_dequeue
            get diagnostics v_taken = row_count;
            if v_taken = 0 then
                raise exception using errcode = 'PQ001', message = 'nothing to take';
            end if;
        exception
            when sqlstate 'PQ001' then null;
        end;
        v_left := v_left - v_taken;
        exit when v_left <= 0;
    end loop;
end
$$;
