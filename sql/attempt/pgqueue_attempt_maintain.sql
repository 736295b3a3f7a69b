create or replace function pgqueue_attempt_maintain(
    p_days_ahead integer default 7,
    p_days_kept integer default null,
    p_lake_days integer default 7
) returns integer
language plpgsql
set search_path from current
set timezone = 'UTC'
set lock_timeout = '50ms'
as $$
-- Maintains the partitions of the history: makes those from today to p_days_ahead days ahead, and drops those that are
-- older than p_days_kept whole days (null: keeps all).  Returns how many were made or dropped, and how many messages were
-- prepared for that (pgqueue_child_keep).
-- Attempts of days on which nothing called this are in pgqueue_attempt_default.  Those days get partitions too, because
-- retention drops partitions and would never reach the rows.  One call takes as many of those days as have 10,000 rows
-- together, or one.  Call it again as long as it does anything.
-- Any number of workers may call it at any time: one works, the others return 0.  When a lock cannot be had within
-- lock_timeout, that step and what comes after it are left for the next call.  Traffic queues behind a session that
-- waits for such a lock, so it is stopped for at most twice the lock_timeout.  Each step that was done stays done.
-- A day with rows that a lake in pgqueue_lake has not read yet waits for it for p_lake_days more days.  Then it is dropped,
-- with a warning, and the row of the lake counts what it has missed.
-- A day that cannot be made or dropped, as an event trigger refuses, a right is missing, or a view needs it, keeps no
-- other day away.  The call that finds nothing else to do raises the error.
-- Drops at most 10 partitions a call: from the first drop to the end no other session can use pgqueue_attempt.
-- Ids are used once.  Tools that copy a database or load fixtures set a sequence to the largest id of its table, which the
-- ids of finished messages are not in: this sets it past those of the history again, with a warning.  A copy by logical
-- replication has no sequences: this sets those of the queue's other tables, too.
declare
    v_day date;
    v_today date := pgqueue_clock()::date;
    v_changed integer := 0;
    v_partition record;
    v_lake record;
    v_unread bigint;
    v_ids record;
    v_days integer := 0;
    v_kept integer := 0;
    v_prepared date := '-infinity';
    v_refused date[] := '{}';
    v_dropped boolean := false;
    v_behind boolean := false;
    v_refusal text;
    v_detail text;
    v_sqlstate text;
    v_foreign_id constant bigint := 4503599627370496;  -- no sequence gets there: somebody has written it by hand
begin
    if p_days_ahead not between 0 and 366 or p_days_kept < 0 or p_lake_days < 0 then
        raise exception 'p_days_ahead is %, p_days_kept is %, and p_lake_days is %', p_days_ahead, p_days_kept, p_lake_days
            using errcode = 'invalid_parameter_value', hint = 'They must be numbers of days: 0 to 366 ahead, and 0 or more kept.';
    end if;
    -- This is no advisory lock, because every login may hold one: this lock needs a right to change the history.  A new
    -- partition needs it anyway, and no traffic waits for it.
    begin
        lock table only pgqueue_attempt in share update exclusive mode nowait;
    exception
        when lock_not_available then
            return 0;
    end;
    -- This reads every day, so it needs a lock for each of them and for their indexes.  The error at its end lets go of
    -- them, because what follows needs room for its own.  It does not undo setval.
    begin
        for v_ids in
            select pg_get_serial_sequence('pgqueue_message', 'id')::regclass as sequence, greatest(
                (select max(m.id) from pgqueue_message m where m.id < v_foreign_id),
                (select max(a.message_id) from pgqueue_attempt a where a.message_id < v_foreign_id),
                (select max(s.message_id) from pgqueue_step s where s.message_id < v_foreign_id)) as known
            union all
            select pg_get_serial_sequence(o.name, 'id')::regclass, o.known
            from (values
                ('pgqueue_attempt', (select max(a.id) from pgqueue_attempt a where a.id < v_foreign_id)),
                ('pgqueue_binding', (select max(b.id) from pgqueue_binding b where b.id < v_foreign_id)),
                ('pgqueue_edit', (select max(e.id) from pgqueue_edit e where e.id < v_foreign_id)),
                ('pgqueue_rollup', (select max(r.id) from pgqueue_rollup r where r.id < v_foreign_id)),
                ('pgqueue_report_hour', (select max(r.id) from pgqueue_report_hour r where r.id < v_foreign_id)),
                ('pgqueue_report_queue', (select max(r.id) from pgqueue_report_queue r where r.id < v_foreign_id)),
                ('pgqueue_report_error', (select max(r.id) from pgqueue_report_error r where r.id < v_foreign_id))
            ) as o (name, known)
        loop
            continue when coalesce(pg_sequence_last_value(v_ids.sequence), 0) >= coalesce(v_ids.known, 0);
            -- Far enough that no other session is past it by now.
            perform setval(v_ids.sequence, v_ids.known + 1000);
            v_behind := true;
            raise warning 'the sequence % was behind the ids that are in use, and continues after %',
                v_ids.sequence, v_ids.known + 1000;
        end loop;
        if v_behind then  -- only then, because no index finds its largest id
            select s.sequence, coalesce(max(a.id), 0) as known into v_ids
            from (select pg_get_serial_sequence('pgqueue_arrival', 'id')::regclass as sequence) as s
            left join pgqueue_arrival a on true group by 1;
            perform setval(v_ids.sequence, greatest(v_ids.known, coalesce(pg_sequence_last_value(v_ids.sequence), 0)) + 1000);
        end if;
        raise exception using errcode = 'PQ001', message = 'all ids are looked at';
    exception
        when sqlstate 'PQ001' then  -- all ids are looked at
            null;
        when lock_not_available then  -- a session changes a partition: the next call looks at them
            null;
        when out_of_memory then
            raise warning 'the ids of the history are not looked at: the server has no room for a lock of each day'
                using hint = 'Keep fewer days, or raise max_locks_per_transaction.';
    end;
    begin
        for v_day in
            with past as (
                select g.day, g.rows, exists (
                    select from pg_class c
                    where c.relname = 'pgqueue_attempt_' || to_char(g.day, 'YYYYMMDD')
                      and c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'pgqueue_attempt'::regclass)
                ) as is_detached
                from (
                    select d.finished_at::date as day, count(*) as rows
                    from pgqueue_attempt_default d
                    where d.finished_at < v_today::timestamptz and isfinite(d.finished_at)
                    group by 1) as g
            )
            select v_today + n from generate_series(0, p_days_ahead) as n
            union
            (select s.day
             from (select o.day, o.rows, sum(o.rows) over (order by o.day) as moved from past o where not o.is_detached) as s
             where s.moved <= 10000 or s.moved = s.rows
             order by 1 limit 30)  -- the next call makes the others: each partition takes locks until the end
            union
            (select o.day from past o where o.is_detached order by 1 limit 1)  -- it cannot be moved, and its error says so
            order by 1
        loop
            begin
                v_changed := v_changed + pgqueue_attempt_partition(v_day)::integer;
            exception
                when lock_not_available then
                    exit;
                when out_of_memory then
                    raise warning 'the day % is not made: the server has no room for its locks', v_day
                        using hint = 'Keep fewer days, or raise max_locks_per_transaction.';
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
    for v_partition in
        select c.oid::regclass as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day  -- it may be in another schema
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'pgqueue_attempt'::regclass
          and c.relname ~ '^pgqueue_attempt_[0-9]{8}$'
          and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_days_kept
        order by c.relname
    loop
        exit when v_days = 10;
        if v_partition.day > v_prepared then
            exit when v_dropped;  -- this may take a while, and nobody can end an attempt behind the lock of a drop
            for v_day in
                select v_partition.day + n from generate_series(0, 9) as n where v_partition.day + n < v_today - p_days_kept
            loop
                begin
                    v_kept := v_kept + pgqueue_child_keep(v_day);
                    exit when v_kept >= 10000;
                    v_prepared := v_day;
                exception
                    when lock_not_available then
                        exit;
                    when others then
                        v_prepared := v_day;
                        v_refused := v_refused || v_day;
                        get stacked diagnostics
                            v_refusal = message_text, v_detail = pg_exception_detail, v_sqlstate = returned_sqlstate;
                end;
            end loop;
            -- The next call goes on, also where all days are prepared: a session that waits for the lock of the drop may
            -- have a snapshot from before it, and would find the ends of children neither here nor there.
            exit when v_partition.day > v_prepared or v_kept > 0;
        end if;
        continue when v_partition.day = any (v_refused);
        v_days := v_days + 1;
        begin
            v_unread := 0;
            for v_lake in select l.id, l.location, l.position from pgqueue_lake l order by l.id loop
                execute format('select count(*) from %s a where a.transaction_id >= $1', v_partition.name)
                    into v_unread using v_lake.position;
                continue when v_unread = 0;
                exit when v_partition.day >= v_today - p_days_kept - p_lake_days;
                raise warning 'the history of % is dropped, and the lake % had not read % attempts of it',
                    v_partition.day, v_lake.location, v_unread;
                update pgqueue_lake l
                set missed_attempts = l.missed_attempts + v_unread, missed_at = pgqueue_clock(),
                    missed_from = least(l.missed_from, v_partition.day),
                    missed_until = greatest(l.missed_until, v_partition.day)
                where l.id = v_lake.id;
                v_unread := 0;
            end loop;
            continue when v_unread > 0;
            execute format('drop table %s', v_partition.name);
            v_changed := v_changed + 1;
            v_dropped := true;
        exception
            when lock_not_available then
                exit;  -- and the lock of pgqueue_attempt is released here
            when out_of_memory then  -- the locks of those that were dropped are held until the end
                if v_changed = 0 then
                    raise;
                end if;
                exit;
            when others then
                v_days := v_days - 1;
                get stacked diagnostics
                    v_refusal = message_text, v_detail = pg_exception_detail, v_sqlstate = returned_sqlstate;
        end;
    end loop;
    v_changed := v_changed + v_kept;
    if v_refusal is not null and v_changed = 0 then
        raise exception using errcode = v_sqlstate, message = concat_ws(': ', v_refusal, nullif(v_detail, ''));
    end if;
    return v_changed;
end
$$;
