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
-- Takes up to p_limit ready messages and locks them for p_lock_ms, from 1 to 1000000000000: highest priority
-- first, then dequeue_at, then id.
-- Returns the rows as they are now; the functions that end attempts need (id, attempt, worker) as the token.
--   p_queues          the queues to serve; null: every queue, except p_exclude_queues.  Paused ones (pgqueue_queue) are
--                     skipped.  Queues that have messages of the same priority share the batch evenly: a flood in one
--                     does not starve another.  Where there are more queues than places in the batch, the next call of
--                     the session continues behind the last one of them.
--   p_worker          the name of the lock's holder; null: a name that stands for this database session.
--   p_tasks           true: messages that name a task (what qworker runs); false: raw messages.
--   p_floor_...       four arrays of equal length: only look in these (queue, priority) pairs, in this order, and only
--                     from (dequeue_at, id) on.  For consumers whose probes are slow because a long transaction keeps
--                     the entries of ended messages at the head of the index: they start behind those.
--   p_brief           true: the transaction ends right after this call.  Pass false in one that goes on: it holds
--                     what it takes, and the turns of those channels, and leaves to others what they need not wait
--                     for.
-- Messages of channels (pgqueue_channel) wait in lanes, which take turns (pgqueue_lane_dequeue).  Where both they and
-- messages without a channel are ready, each get half of p_limit.
-- Scheduled messages come into line when they are due: 500 at each call, the highest priorities first, and within a
-- priority those that have been due for longest, whatever their queues where all are served.  So the line
-- (pgqueue_message_ready_ix) contains hardly any message that is not due, and no dequeue walks over scheduled messages
-- that are spread over many queues.
-- Every step is a probe of that index: one for each priority, one for each queue that gets a share, and one for each row
-- taken, whatever the backlog, the schedule and the number of queues.  The id = any (array (...)) form and the settings
-- above pin that plan; a join form that was planned on an empty table goes on scanning when the table has filled up.
-- The claim goes by id: by ctid it would miss a row that changed after its snapshot, and leave it locked.
-- Locks rows of pgqueue_message without waiting for any; calls pgqueue_message_expire when a lock ran out,
-- and pgqueue_message_settle when a message has ended that others wait for.
declare
    v_clock timestamptz := pgqueue_clock();
    v_now bigint := floor(extract(epoch from v_clock) * 1000);
    v_worker text := coalesce(p_worker, pgqueue_session_worker());
    v_expired boolean;
    v_arrived boolean;
    v_ended boolean;
    v_scheduled boolean;  -- whether any message may come into line
    v_due integer[];  -- the priorities of the messages that do
    v_exclude_queues text[];
    v_paused text[];
    v_queue text;
    v_present text[];  -- queues that have something due at v_priority
    v_tidied boolean := false;
    v_early text[];  -- queues whose head is not due
    v_page integer;  -- how many queues one step looks at; null: the next priority is still to be found
    v_last boolean;  -- whether no queue follows them
    v_from text;  -- the queue behind which the page begins
    v_turn text;  -- the queue behind which the round began; null: all queues are in one page
    v_wrapped boolean;  -- whether the round has passed the last queue and continued with the first
    v_alone boolean;
    v_giving text[];  -- the queues that gave messages in this round
    v_served text;
    v_setting text := case when p_tasks then 'pgqueue.turn_of_tasks' else 'pgqueue.turn_of_raw' end;
    v_priority integer := 32767;
    v_left integer := p_limit;
    v_share integer;
    v_taken integer;
    v_again boolean;
    v_step integer := 0;
    v_lanes boolean;  -- whether lanes may have more messages
    v_share_of_lanes integer := floor(p_limit / 2.0 + random());
    v_floor_dequeue_at bigint := -9223372036854775808;
    v_floor_id bigint := -9223372036854775808;
begin
    if (p_lock_ms between 1 and 1000000000000) is not true then
        raise exception 'p_lock_ms is %', coalesce(p_lock_ms::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'It must be milliseconds, from 1 to 1000000000000.';
    end if;
    -- One statement asks all questions first, because a worker that was woken for a single message waits for it.
    select exists (select from pgqueue_message m where m.unlock_at is not null and m.unlock_at <= v_now),
           exists (select from pgqueue_arrival),
           exists (select from pgqueue_ended e where e.look_at <= v_now or e.look_at > v_now + 60000),  -- as in settle
           exists (select from pgqueue_lane),
           p_floor_queues is null and (
               select true
               from pgqueue_message m
               where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
               order by m.priority desc, m.dequeue_at limit 1  -- only pgqueue_message_due_ix has this order
           ),
           array(select q.name from pgqueue_queue q where q.paused_at is not null)
    into v_expired, v_arrived, v_ended, v_lanes, v_scheduled, v_paused;
    v_exclude_queues := p_exclude_queues || v_paused;

    if v_expired or v_arrived or v_ended then
        if v_ended and p_brief then  -- first, because it does more in a transaction that has not written
            perform pgqueue_message_settle();
            v_clock := pgqueue_clock();  -- the messages that it has released are due since a moment ago
            v_now := floor(extract(epoch from v_clock) * 1000);
        end if;
        if v_expired and p_brief then
            perform pgqueue_message_expire();
        end if;
        if p_brief then
            perform pgqueue_lane_arm();
        end if;
        v_lanes := exists (select from pgqueue_lane) or v_arrived;
    end if;

    if v_lanes and v_share_of_lanes > 0 then
        -- The conditions name the table, so that sessions plan the statements anew when it gets a column.
        if p_brief then
            return query select * from pgqueue_lane_dequeue(
                p_queues, v_share_of_lanes, p_lock_ms, v_worker, p_tasks, p_exclude_queues => v_exclude_queues)
            where (select true from pgqueue_message where false) is null;
        else
            return query select * from pgqueue_lane_dequeue_apart(
                p_queues, v_share_of_lanes, p_lock_ms, v_worker, p_tasks, v_exclude_queues)
            where (select true from pgqueue_message where false) is null;
        end if;
        get diagnostics v_taken = row_count;
        v_left := v_left - v_taken;
        v_lanes := v_taken = v_share_of_lanes;
    end if;

    if v_scheduled and v_left > 0 and p_queues is null then
        with recursive level as (
            (select m.priority, m.dequeue_at
             from pgqueue_message m
             where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
             order by m.priority desc, m.dequeue_at limit 1)
            union all
            select n.priority, n.dequeue_at
            from level l
            cross join lateral (
                select m.priority, m.dequeue_at
                from pgqueue_message m
                where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
                  and m.priority < l.priority
                order by m.priority desc, m.dequeue_at limit 1
            ) as n
        )
        select array_agg(l.priority) into v_due from level l where l.dequeue_at <= v_now;
        if v_due is not null then
            if not p_brief and v_paused <> '{}' then
                -- A transaction that goes on locks the rows that it brings into line: of other queues no more than it can
                -- take.  Those of paused queues nobody waits for, and they would be in its way at each call.
                update pgqueue_message u
                set in_line = true
                where u.ctid = any (array(
                    select m.ctid
                    from pgqueue_message m
                    where m.ctid = any (array(
                        select f.ctid
                        from (
                            select n.ctid, n.queue
                            from unnest(v_due) as l (priority)
                            cross join lateral (
                                select m.ctid, m.queue
                                from pgqueue_message m
                                where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
                                  and m.priority = l.priority and m.dequeue_at <= v_now
                                  and m.queue <> all (p_exclude_queues)
                                order by m.dequeue_at
                            ) as n
                            limit 500
                        ) as f
                        where f.queue = any (v_paused)
                    )) and m.unlock_at is null and not m.in_line
                    for no key update skip locked
                ));
            end if;
            update pgqueue_message u
            set in_line = true
            where u.ctid = any (array(
                select f.ctid
                from (
                    select n.ctid, n.queue
                    from unnest(v_due) as l (priority)
                    cross join lateral (
                        select m.ctid, m.queue
                        from pgqueue_message m
                        where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
                          and m.priority = l.priority and m.dequeue_at <= v_now
                          and (p_brief or m.queue <> all (p_exclude_queues))
                        order by m.dequeue_at
                        for no key update skip locked
                    ) as n
                    limit 500
                ) as f
                where p_brief or f.queue <> all (v_paused)
                limit case when p_brief then 500 else v_left end
            ));
        end if;
    elsif v_scheduled and v_left > 0 then
        update pgqueue_message u
        set in_line = true
        where u.ctid = any (array(
            with recursive head as (
                select q.queue, h.priority, h.dequeue_at
                from unnest(p_queues) as q (queue)
                cross join lateral (
                    select m.priority, m.dequeue_at
                    from pgqueue_message m
                    where m.queue = q.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
                      and not m.in_line and m.channel is null
                    order by m.priority desc, m.dequeue_at, m.id limit 1
                ) as h
                where q.queue <> all (v_exclude_queues)
                union all
                select l.queue, h.priority, h.dequeue_at
                from head l
                cross join lateral (
                    select m.priority, m.dequeue_at
                    from pgqueue_message m
                    where m.queue = l.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
                      and not m.in_line and m.channel is null and m.priority < l.priority
                    order by m.priority desc, m.dequeue_at, m.id limit 1
                ) as h
            )
            select n.ctid
            from head l
            cross join lateral (
                select m.ctid
                from pgqueue_message m
                where m.queue = l.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
                  and not m.in_line and m.channel is null and m.priority = l.priority and m.dequeue_at <= v_now
                order by m.dequeue_at, m.id
                limit case when p_brief then 100 end
                for no key update skip locked
            ) as n
            where l.dequeue_at <= v_now
            limit case when p_brief then 500 else v_left end
        ));
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
        elsif p_queues is not null then
            -- The highest priority below the last one at which any of the queues has a due message.
            with recursive level as (
                (select m.priority
                 from pgqueue_message m
                 where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                   and m.priority < v_priority
                 order by m.priority desc limit 1)
                union all
                select n.priority
                from level l
                cross join lateral (
                    select m.priority
                    from pgqueue_message m
                    where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                      and m.priority < l.priority
                    order by m.priority desc limit 1
                ) as n
            )
            select l.priority, s.present
            into v_priority, v_present
            from level l
            cross join lateral (
                select array_agg(q.queue order by random()) as present
                from unnest(p_queues) as q (queue)
                cross join lateral (
                    select m.dequeue_at
                    from pgqueue_message m
                    where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                      and m.priority = l.priority and m.queue = q.queue
                    order by m.dequeue_at, m.id limit 1
                ) as head
                where head.dequeue_at <= v_now and q.queue <> all (v_exclude_queues)
            ) as s
            where s.present is not null
            limit 1;
            exit when not found;
        else
            if v_page is null then  -- the next priority, and whether it has one queue only
                select h.priority, h.queue, h.dequeue_at <= v_now and h.queue <> all (v_exclude_queues), not exists (
                    select from pgqueue_message m
                    where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                      and m.priority = h.priority and m.queue > h.queue
                )
                into v_priority, v_queue, v_alone, v_last
                from (
                    select m.priority, m.queue, m.dequeue_at
                    from pgqueue_message m
                    where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                      and m.priority < v_priority
                    order by m.priority desc, m.queue, m.dequeue_at, m.id limit 1
                ) as h;
                exit when not found;
                v_turn := null;
                if not (v_last and v_alone) then
                    v_page := greatest(v_left, 32);
                    v_from := '';
                end if;
            end if;
            if v_page is null then
                v_present := array[v_queue];
            else
                -- A page of its queues: a loose index scan, one probe for each.
                with recursive line as (
                    (select m.queue, m.dequeue_at
                     from pgqueue_message m
                     where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                       and m.priority = v_priority and m.queue > v_from
                     order by m.queue, m.dequeue_at, m.id limit 1)
                    union all
                    select n.queue, n.dequeue_at
                    from line l
                    cross join lateral (
                        select m.queue, m.dequeue_at
                        from pgqueue_message m
                        where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                          and m.priority = v_priority and m.queue > l.queue
                        order by m.queue, m.dequeue_at, m.id limit 1
                    ) as n
                )
                -- A round keeps the order of the names; where all are in one page, no queue is always the first.
                select array_agg(q.queue order by case when v_turn is null then random() else 0 end, q.queue)
                           filter (where q.dequeue_at <= v_now and q.queue <> all (v_exclude_queues)
                                     and (v_turn is null or not v_wrapped or q.queue <= v_turn)),
                       array_agg(q.queue) filter (where q.dequeue_at > v_now),
                       max(q.queue), count(*) < v_page
                into v_present, v_early, v_from, v_last
                from (select l.queue, l.dequeue_at from line l limit v_page) as q;

                if v_early is not null and p_brief and not v_tidied then
                    v_tidied := true;
                    -- Written by hand, or the clock was put back: the message leaves the line until its time.
                    update pgqueue_message u
                    set in_line = false
                    where u.ctid = any (array(
                        select n.ctid
                        from unnest(v_early) as q (queue)
                        cross join lateral (
                            select m.ctid
                            from pgqueue_message m
                            where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                              and m.priority = v_priority and m.queue = q.queue and m.dequeue_at > v_now
                            order by m.dequeue_at, m.id
                            limit 500
                            for no key update skip locked
                        ) as n
                        limit 500
                    ));
                end if;
                if v_turn is null and v_last then
                    v_page := null;
                elsif v_turn is null then
                    -- More than a page.  This session continues where it stopped, or begins anywhere.
                    v_turn := coalesce(nullif(current_setting(v_setting, true), ''), case floor(random() * 3)
                        when 0 then v_present[1]
                        when 1 then chr(97 + floor(random() * 26)::integer)
                        else (
                            select m.queue from pgqueue_message m
                            where m.id >= (
                                select (f.id + floor(random()::numeric * (l.id::numeric - f.id)))::bigint
                                from (select d.id from pgqueue_message d order by d.id limit 1) as f,
                                     (select d.id from pgqueue_message d order by d.id desc limit 1) as l)
                            order by m.id limit 1)
                    end, '');
                    v_from := v_turn;
                    v_wrapped := false;
                    v_giving := '{}';
                    continue;
                elsif v_wrapped and (v_last or v_from >= v_turn) then  -- the last page of the round
                    v_page := null;
                elsif v_last then
                    v_wrapped := true;
                    v_from := '';
                end if;
            end if;
            continue when v_present is null and (v_turn is null or v_page is not null);
        end if;

        -- First equal shares, in a round one message of each queue.  Then the rest, when a queue had more than its
        -- share and others had less.
        v_share := case when v_turn is null then ceil(v_left::numeric / cardinality(v_present)) else 1 end;
        loop
            v_again := false;
            foreach v_queue in array coalesce(v_present, '{}') loop
                exit when v_left <= 0;
                return query
                with taken as (
                    update pgqueue_message u
                    set unlock_at = v_now + p_lock_ms, locked_at = v_clock, worker = v_worker,
                        attempt = least(u.attempt, 1999999999) + 1
                    where u.id = any (array(
                        select m.id
                        from pgqueue_message m
                        where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                          and m.priority = v_priority and m.queue = v_queue
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
                if v_turn is not null then
                    v_served := v_queue;
                    if v_taken > 0 then
                        v_giving := v_giving || v_queue;
                    end if;
                end if;
            end loop;
            if v_turn is null then
                exit when v_left <= 0 or not v_again or cardinality(v_present) = 1;
                v_share := v_left;
            else
                perform set_config(v_setting, v_served, false) where v_served is not null;
                exit when v_left <= 0 or v_page is not null or v_giving = '{}';
                -- The round is over: the queues that gave a message share the rest.
                v_turn := null;
                v_present := v_giving;
                v_share := ceil(v_left::numeric / cardinality(v_present));
            end if;
        end loop;
    end loop;

    if v_lanes and v_left > 0 then
        if p_brief then
            return query select * from pgqueue_lane_dequeue(
                p_queues, v_left, p_lock_ms, v_worker, p_tasks, p_exclude_queues => v_exclude_queues)
            where (select true from pgqueue_message where false) is null;
        else
            return query select * from pgqueue_lane_dequeue_apart(
                p_queues, v_left, p_lock_ms, v_worker, p_tasks, v_exclude_queues)
            where (select true from pgqueue_message where false) is null;
        end if;
        get diagnostics v_taken = row_count;
        v_left := v_left - v_taken;
    end if;

    if v_expired and not p_brief and v_left > 0 and pgqueue_message_expire(v_left, p_queues, p_tasks) > 0 then
        return query
        select *
        from pgqueue_message_dequeue(
            p_queues, v_left, p_lock_ms, p_worker, p_exclude_queues, p_tasks, p_brief => false)
        where (select true from pgqueue_message where false) is null;
    end if;
end
$$;
