create or replace function pgqueue_message_dequeue(
    p_queues text[] default null,
    p_limit integer default 1,
    p_lock_ms bigint default 60000,
    p_worker text default null,
    p_exclude_queues text[] default '{}',
    p_tasks boolean default false,
    p_floor_queues text[] default null,
    p_floor_priorities integer[] default null,
    p_floor_dequeue_ats bigint[] default null,
    p_floor_ids bigint[] default null,
    p_brief boolean default true
) returns setof pgqueue_message
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Takes up to p_limit ready messages and locks them for p_lock_ms: highest priority first, then dequeue_at, then id.
-- Answers the rows as they are now; (id, attempt, worker) is the token that the ending calls want back.
--   p_queues          the queues to serve; null: every queue, except p_exclude_queues.  Paused ones (pgqueue_queue) are
--                     passed over.  Queues that have messages of
--                     the same priority share the batch evenly: a flood in one does not starve another.
--   p_worker          who holds the lock; null: a name that stands for this database session.
--   p_tasks           true: messages that name a task (what qworker runs); false: raw messages.
--   p_floor_…         four arrays of equal length: only look in these (queue, priority) pairs, in this order, and only
--                     from (dequeue_at, id) on.  For consumers that find their probes slow, because a long transaction
--                     keeps the entries of ended messages at the head of the index: they start behind those.
--   p_brief           the transaction ends right after this call.  One that goes on says false: it holds what it takes, and
--                     the turns of those channels, and leaves to others what they need not wait for.
-- Messages of channels (pgqueue_channel) wait in lanes, which take turns (pgqueue_lane_dequeue).  Where both they and
-- messages without a channel are ready, each get half of p_limit.
-- Every step is a probe of pgqueue_message_ready_ix: at most one for each (queue, priority) present plus one for each
-- row taken, whatever the backlog or the schedule.  The ctid = any (array (…)) form and the settings above pin that
-- plan; a join form that was planned on an empty table goes on scanning when the table has filled up.
-- Locks rows of pgqueue_message without waiting for any; calls pgqueue_message_expire when a lock ran out,
-- and pgqueue_message_settle when a message has ended that others wait for.
declare
    v_clock timestamptz := pgqueue_clock();
    v_now bigint := floor(extract(epoch from v_clock) * 1000);
    v_worker text := coalesce(p_worker, pgqueue_session_worker());
    v_expired boolean;
    v_arrived boolean;
    v_ended boolean;
    v_queues text[];
    v_exclude_queues text[];
    v_queue text;
    v_present text[];  -- the queues that have something due at v_priority
    v_priority integer := 32767;
    v_left integer := p_limit;
    v_share integer;
    v_taken integer;
    v_again boolean;
    v_step integer := 0;
    v_lanes boolean;  -- whether lanes may have more
    v_share_of_lanes integer := floor(p_limit / 2.0 + random());
    v_floor_dequeue_at bigint := -9223372036854775808;
    v_floor_id bigint := -9223372036854775808;
begin
    if p_lock_ms not between -1000000000000 and 1000000000000 then
        raise exception 'p_lock_ms is %', p_lock_ms
            using errcode = 'invalid_parameter_value', hint = 'It must be milliseconds, at most 1000000000000.';
    end if;
    -- One statement for all that is asked first: who is woken for a single message waits for it.
    select exists (select from pgqueue_message m where m.unlock_at is not null and m.unlock_at <= v_now),
           exists (select from pgqueue_arrival),
           exists (select from pgqueue_ended e where e.look_at <= v_now),
           exists (select from pgqueue_lane),
           p_exclude_queues || array(select q.name from pgqueue_queue q where q.paused_at is not null),
           case
               when p_queues is not null or p_floor_queues is not null then p_queues
               else array(
                   with recursive present as (  -- as pgqueue_message_queues, whose call costs twice as much
                       (select m.queue from pgqueue_message m where m.unlock_at is null order by m.queue limit 1)
                       union all
                       select (select m.queue from pgqueue_message m where m.unlock_at is null and m.queue > p.queue
                               order by m.queue limit 1)
                       from present p
                       where p.queue is not null
                   )
                   select p.queue from present p where p.queue is not null
               )
           end
    into v_expired, v_arrived, v_ended, v_lanes, v_exclude_queues, v_queues;

    if v_expired or v_arrived or v_ended then
        if v_ended and p_brief then  -- first, because it does more in a transaction that has not written
            perform pgqueue_message_settle();
            v_clock := pgqueue_clock();  -- what it has released is due since a moment ago
            v_now := floor(extract(epoch from v_clock) * 1000);
        end if;
        if v_expired and p_brief then
            perform pgqueue_message_expire();
        end if;
        if p_brief then
            perform pgqueue_lane_arm();
        end if;
        v_lanes := exists (select from pgqueue_lane) or v_arrived;
        v_queues := p_queues;  -- there may be others now
    end if;

    if p_floor_queues is null or v_lanes then
        if v_queues is null then
            v_queues := array(select q from pgqueue_message_queues() as q);
        end if;
        if v_exclude_queues <> '{}' then
            v_queues := array(select q from unnest(v_queues) as q where q <> all (v_exclude_queues));
        end if;
        if cardinality(v_queues) > 1 then
            v_queues := array(select q from unnest(v_queues) as q order by random());
        end if;
    end if;

    if v_lanes and v_share_of_lanes > 0 then
        if p_brief then
            return query select * from pgqueue_lane_dequeue(v_queues, v_share_of_lanes, p_lock_ms, v_worker, p_tasks);
        else
            return query select * from pgqueue_lane_dequeue_apart(v_queues, v_share_of_lanes, p_lock_ms, v_worker, p_tasks);
        end if;
        get diagnostics v_taken = row_count;
        v_left := v_left - v_taken;
        v_lanes := v_taken = v_share_of_lanes;
    end if;

    while v_left > 0 loop
        if p_floor_queues is not null then
            v_step := v_step + 1;
            exit when v_step > cardinality(p_floor_queues);
            continue when p_floor_queues[v_step] = any (v_exclude_queues);
            v_present := array[p_floor_queues[v_step]];
            v_priority := p_floor_priorities[v_step];
            v_floor_dequeue_at := p_floor_dequeue_ats[v_step];
            v_floor_id := p_floor_ids[v_step];
        else
            if cardinality(v_queues) = 1 then  -- the same as below, for less
                select m.priority, case when m.dequeue_at <= v_now then v_queues end
                into v_priority, v_present
                from pgqueue_message m
                where m.queue = v_queues[1] and (m.task is null) = (not p_tasks) and m.unlock_at is null
                  and m.channel is null and m.priority < v_priority
                order by m.priority desc, m.dequeue_at, m.id
                limit 1;
            else
                -- The highest priority below the last one in any of the queues, and the queues whose head there is due.
                -- priority < v_priority order by priority desc limit 1 is a loose index scan, one probe a queue.
                select p.priority, array_agg(p.queue) filter (where p.dequeue_at <= v_now)
                into v_priority, v_present
                from (
                    select q.queue, head.priority, head.dequeue_at, max(head.priority) over () as highest
                    from unnest(v_queues) as q (queue)
                    cross join lateral (
                        select m.priority, m.dequeue_at
                        from pgqueue_message m
                        where m.queue = q.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
                          and m.channel is null and m.priority < v_priority
                        order by m.priority desc, m.dequeue_at, m.id
                        limit 1
                    ) as head
                ) as p
                where p.priority = p.highest
                group by p.priority;
            end if;
            exit when not found;
            continue when v_present is null;
        end if;

        -- First round: equal shares.  Then, when a queue had more than its share and others had less: the rest.
        v_share := ceil(v_left::numeric / cardinality(v_present));
        loop
            v_again := false;
            foreach v_queue in array v_present loop
                exit when v_left <= 0;
                return query
                with taken as (
                    update pgqueue_message u
                    set unlock_at = v_now + p_lock_ms, locked_at = v_clock, worker = v_worker,
                        attempt = least(u.attempt, 1999999999) + 1
                    where u.ctid = any (array(
                        select m.ctid
                        from pgqueue_message m
                        where m.queue = v_queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
                          and m.channel is null and m.priority = v_priority
                          and m.dequeue_at <= v_now
                          and (m.dequeue_at, m.id) >= (v_floor_dequeue_at, v_floor_id)
                        order by m.dequeue_at, m.id
                        limit least(v_share, v_left)
                        for no key update skip locked
                    ))
                    returning u.*
                )
                select * from taken t order by t.dequeue_at, t.id;
                get diagnostics v_taken = row_count;
                v_left := v_left - v_taken;
                v_again := v_again or v_taken >= v_share;
            end loop;
            exit when v_left <= 0 or not v_again or cardinality(v_present) = 1;
            v_share := v_left;
        end loop;
    end loop;

    if v_lanes and v_left > 0 then
        if p_brief then
            return query select * from pgqueue_lane_dequeue(v_queues, v_left, p_lock_ms, v_worker, p_tasks);
        else
            return query select * from pgqueue_lane_dequeue_apart(v_queues, v_left, p_lock_ms, v_worker, p_tasks);
        end if;
        get diagnostics v_taken = row_count;
        v_left := v_left - v_taken;
    end if;

    if v_expired and not p_brief and v_left > 0 and pgqueue_message_expire(v_left, p_queues, p_tasks) > 0 then
        return query
        select *
        from pgqueue_message_dequeue(
            p_queues, v_left, p_lock_ms, p_worker, p_exclude_queues, p_tasks, p_brief => false);
    end if;
end
$$;
