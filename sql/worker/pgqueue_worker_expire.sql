create or replace function pgqueue_worker_expire(
    p_silent_ms bigint default 6000,
    p_limit integer default 100,
    p_return_ms bigint default 10000
) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Takes messages away from workers that are gone, without waiting for their locks to expire, and returns how many.  Each
-- such attempt is recorded as lost, as by pgqueue_message_expire.  Deletes the rows of these workers when they hold
-- nothing any more.
-- A worker is gone if it had said that its sessions hold its advisory lock (pgqueue_worker_hold), no session holds it,
-- and the worker has not been seen for p_silent_ms: one whose connection has broken may come back within that time.  A
-- time that is more than ten minutes ahead is of a clock that was wrong, and is no such sign of life.
-- Locks say nothing of what was before the server was started, or before it restarted its processes after a crash: then
-- all sessions ended at once, and the workers have p_return_ms from that moment to come back.  They say nothing either of
-- workers that were seen on another server while this one ran, as it does after a standby was promoted: their messages'
-- locks decide.  So they do for workers that rest (silent_until), which hold nothing.
-- Looks into pg_locks and takes no advisory lock, so it is in the way of no worker, and of no other look.  Reads them
-- only if a worker has not been seen for that long.  A hundred workers and p_limit messages at each call.
-- Locks rows of pgqueue_message in the order of ids, then rows of pgqueue_worker, without waiting for any; writes
-- pgqueue_message, pgqueue_attempt and pgqueue_worker.
declare
    v_message pgqueue_message;
    v_started_at timestamptz := pg_postmaster_start_time();
    -- A crash throws the statistics away.
    v_up_at timestamptz := greatest(v_started_at, pg_stat_get_bgwriter_stat_reset_time());
    v_up_for_long boolean := clock_timestamp() - v_up_at > p_return_ms * interval '1 millisecond';
    v_seen_before timestamptz := pgqueue_clock() - p_silent_ms * interval '1 millisecond';
    v_seen_until timestamptz := pgqueue_clock() + interval '10 minutes';
    v_workers text[];
    v_count integer := 0;
begin
    select array_agg(w.id) into v_workers
    from pgqueue_worker w
    where w.server_started_at is not null and w.silent_until is null and w.seen_at not between v_seen_before and v_seen_until;
    if v_workers is null then
        return 0;
    end if;
    with held as materialized (
        select (l.classid::bigint << 32) | l.objid::bigint as number
        from pg_locks l
        where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
    )
    select array_agg(g.id) into v_workers
    from (
        select w.id
        from pgqueue_worker w
        where w.id = any (v_workers) and w.server_started_at is not null and w.silent_until is null
          and w.seen_at not between v_seen_before and v_seen_until
          and case
              when w.server_started_at = pgqueue_to_epoch(v_started_at) then w.seen_at between v_up_at and v_seen_until or v_up_for_long
              else (w.seen_at < v_started_at or w.seen_at > v_seen_until) and v_up_for_long
              end
          and not exists (select from held h where h.number = pgqueue_worker_number(w.id))
        order by w.seen_at, w.id
        limit 100
    ) as g;
    if v_workers is null then
        return 0;
    end if;
    for v_message in
        select m.* from pgqueue_message m
        where m.unlock_at is not null and m.worker = any (v_workers)
        order by m.id
        limit p_limit
        for update skip locked
    loop
        perform pgqueue_message_lose(
            v_message,
            format('worker %s is gone: no session of it is left, and it was not seen for %s s', v_message.worker,
                   round(p_silent_ms / 1000.0)),
            false);
        v_count := v_count + 1;
    end loop;
    -- A row that another session has locked is left to the next call.  A worker that has come back meanwhile stays.
    delete from pgqueue_worker w
    where w.id = any (array(
            select d.id from pgqueue_worker d
            where d.id = any (v_workers) and d.seen_at not between v_seen_before and v_seen_until
            order by d.id
            for update skip locked))
      and not exists (select from pgqueue_message m where m.unlock_at is not null and m.worker = w.id);
    return v_count;
end
$$;
