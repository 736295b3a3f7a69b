create or replace function pgqueue_step_maintain(
    p_days_ahead integer default 7,
    p_days_kept integer default null,
    p_lake_days integer default 7
) returns integer
language plpgsql
set search_path from current
set timezone = 'UTC'
set lock_timeout = '50ms'
set plan_cache_mode = 'force_custom_plan'
as $$
-- Maintains the tables of durable tasks.  Returns how many partitions of pgqueue_step it has made or dropped, and how
-- many rows it has moved or deleted: call it again as long as it does anything.
-- Makes, where there are any steps, the partitions from today to p_days_ahead days ahead, and of days whose rows are in
-- pgqueue_step_default.  Deletes events that are older than p_days_kept whole days (null: keeps all), decisions and
-- children of messages that had ended by then, and, however young, budgets of ended messages and what nobody can decide
-- any more, up to 10,000 of each.  It keeps the events for which a message has begun to wait and that it has not read
-- yet: its queue may have been paused ever since, or nobody knows its task.
-- If all that was nothing, it drops a partition that is as old: what the rest has locked would be locked meanwhile.  The
-- call before moves the steps of a message that is still in the queue, and those of one that has ended since, into the
-- day of its end.  A session that waits for the lock of the drop may have a snapshot from before it, in which the moved
-- steps must be: otherwise a task would not find them, and do them again.
-- Where pgqueue_lake has a lake, everything stays p_lake_days days longer: a lake gets the steps of a message with the
-- attempt that ends it.
-- A day that cannot be made or dropped, as an event trigger refuses, a right is missing, or a view needs it, keeps nothing
-- else from it.  The call that finds nothing else to do raises the error.
-- One worker does this at a time; the others return 0.
declare
    v_day date;
    v_today date := pgqueue_clock()::date;
    v_changed integer := 0;
    v_rows integer;
    v_partition regclass;
    v_last_id bigint;
    v_awaited text[] := '{}';
    v_since timestamptz;  -- what has ended since is kept
    v_until timestamptz;  -- the look at the history locks no later day: the server may have no room for each of them
    v_refusal text;
    v_detail text;
    v_sqlstate text;
begin
    if p_days_ahead not between 0 and 366 or p_days_kept < 0 or p_lake_days < 0 then
        raise exception 'p_days_ahead is %, p_days_kept is %, and p_lake_days is %', p_days_ahead, p_days_kept, p_lake_days
            using errcode = 'invalid_parameter_value', hint = 'They must be numbers of days: 0 to 366 ahead, and 0 or more kept.';
    end if;
    if exists (select from pgqueue_lake) then
        p_days_kept := p_days_kept + p_lake_days;
    end if;
    begin
        lock table only pgqueue_step in share update exclusive mode nowait;
    exception
        when lock_not_available then
            return 0;
    end;
    v_since := v_today - p_days_kept;
    v_until := v_since + interval '400 days';
    -- Before the locks of days that are made or dropped: nobody could record a step while this looks at the history.
    begin
        if p_days_kept is not null then
            if exists (select from pgqueue_event o where o.emitted_at < v_since) then
                -- A message that waits for a time only, or for others, reads none.
                v_awaited := array(
                    select m.awaited_event from pgqueue_message m
                    where m.suspended_attempt is not null and m.awaited_event is not null
                    union
                    select case s.kind when 'approval' then format('pgqueue:approval:%s:%s', s.message_id, s.name)
                                       else coalesce(s.result #>> '{}', s.name) end
                    from pgqueue_message m
                    join pgqueue_step s on s.message_id = m.id
                    where m.suspended_attempt is not null and (m.attempt <> m.suspended_attempt or m.in_line or m.parked_at is not null)
                      and s.status = 'waiting' and s.kind in ('event', 'approval')
                      and not exists (
                        select from pgqueue_step d where d.message_id = m.id and d.name = s.name and d.status = 'done'));
            end if;
            delete from pgqueue_event e
            where e.ctid = any (array(
                select o.ctid from pgqueue_event o
                where o.emitted_at < v_since and o.name <> all (v_awaited)
                limit 10000 for update skip locked));
            get diagnostics v_rows = row_count;
            v_changed := v_changed + v_rows;
            delete from pgqueue_approval a
            where a.ctid = any (array(
                select o.ctid from pgqueue_approval o
                where o.asked_at < v_since
                  and not exists (select from pgqueue_message m where m.id = o.message_id)
                  and (select true from pgqueue_attempt t
                       where t.message_id = o.message_id and t.final and t.finished_at >= v_since and t.finished_at < v_until
                       limit 1) is null
                limit 10000 for update skip locked));
            get diagnostics v_rows = row_count;
            v_changed := v_changed + v_rows;
            -- Not sooner: pgqueue_step_enqueue gives them to another parent.
            delete from pgqueue_child c
            where c.ctid = any (array(
                select o.ctid from pgqueue_child o
                where o.created_at < v_since
                  and not exists (select from pgqueue_message m where m.id = o.parent_id)
                  and (select true from pgqueue_attempt t
                       where t.message_id = o.parent_id and t.final and t.finished_at >= v_since and t.finished_at < v_until
                       limit 1) is null
                limit 10000 for update skip locked));
            get diagnostics v_rows = row_count;
            v_changed := v_changed + v_rows;
        end if;
        delete from pgqueue_approval a
        where a.ctid = any (array(
            select o.ctid from pgqueue_approval o
            where o.decided_at is null and not exists (select from pgqueue_message m where m.id = o.message_id)
            limit 10000 for update skip locked));
        get diagnostics v_rows = row_count;
        v_changed := v_changed + v_rows;
        delete from pgqueue_budget b
        where b.ctid = any (array(
            select o.ctid from pgqueue_budget o
            where not exists (select from pgqueue_message m where m.id = o.message_id) limit 10000 for update skip locked));
        get diagnostics v_rows = row_count;
        v_changed := v_changed + v_rows;
    exception
        when lock_not_available then  -- somebody makes or drops a day of the history: a later call deletes them
            v_changed := 0;
    end;
    begin
        for v_day in
            select v_today + n from generate_series(0, p_days_ahead) as n where exists (select from pgqueue_step)
            union
            (select distinct d.recorded_at::date from pgqueue_step_default d where isfinite(d.recorded_at) limit 30)
            order by 1
        loop
            begin
                v_changed := v_changed + pgqueue_step_partition(v_day)::integer;
            exception
                when lock_not_available then  -- somebody reads them: the next call makes them
                    exit;
                when others then
                    get stacked diagnostics
                        v_refusal = message_text, v_detail = pg_exception_detail, v_sqlstate = returned_sqlstate;
            end;
        end loop;
    exception
        when lock_not_available then  -- held by a session that reads the default partition
            null;
    end;
    if p_days_kept is not null and v_changed = 0 then  -- what was done holds locks that others wait for
        for v_partition in
            select c.oid::regclass  -- it may be in another schema
            from pg_inherits i
            join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'pgqueue_step'::regclass
              and c.relname ~ '^pgqueue_step_[0-9]{8}$'
              and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_days_kept
            order by c.relname
        loop
            begin
                execute format('select max(s.message_id) from %s s', v_partition) into v_last_id;
                -- Hardly any message that is as old has ended since: one look at each day finds them, and not one for
                -- each message and day.
                execute format(
                    'with kept as (
                        select d.message_id, coalesce(
                            (select greatest(pgqueue_clock(), m.created_at) from pgqueue_message m where m.id = d.message_id),
                            e.at) as at
                        from (select distinct r.message_id from %s r) as d
                        left join (
                            select a.message_id, min(a.finished_at) as at from pgqueue_attempt a
                            where a.message_id <= $3 and a.final and a.finished_at >= $1 and a.finished_at < $2
                            group by a.message_id
                        ) as e on e.message_id = d.message_id
                     ), moved as (
                        delete from %s s using kept k where s.message_id = k.message_id and k.at is not null
                        returning s.*, k.at
                     )
                     insert into pgqueue_step (
                        message_id, recorded_at, started_at, finished_at, until, attempt, kind, status, name, error, result)
                     select s.message_id, date_trunc(''day'', s.at) + (s.recorded_at - date_trunc(''day'', s.recorded_at)),
                            s.started_at, s.finished_at, s.until, s.attempt, s.kind, s.status, s.name, s.error, s.result
                     from moved s', v_partition, v_partition)
                    using v_since, v_until, v_last_id;
                get diagnostics v_changed = row_count;
                exit when v_changed > 0;
                execute format('drop table %s', v_partition);
                v_changed := v_changed + 1;
                exit;  -- one a call
            exception
                when lock_not_available then
                    exit;
                when others then
                    get stacked diagnostics
                        v_refusal = message_text, v_detail = pg_exception_detail, v_sqlstate = returned_sqlstate;
            end;
        end loop;
    end if;
    if v_refusal is not null and v_changed = 0 then
        raise exception using errcode = v_sqlstate, message = concat_ws(': ', v_refusal, nullif(v_detail, ''));
    end if;
    return v_changed;
end
$$;
