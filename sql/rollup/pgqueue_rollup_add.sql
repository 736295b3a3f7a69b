create or replace function pgqueue_rollup_add(p_every_seconds integer default 0, p_most integer default 20000)
returns boolean
language plpgsql
set search_path from current
set timezone = 'UTC'
set enable_seqscan = off
set plan_cache_mode = 'force_custom_plan'
set jit = off
as $$
-- Adds attempts that have ended since the last call to pgqueue_rollup.  Returns true while there are more: call it again.
-- Any number of workers may call it at any time: one works, the others return false.  So does everybody when the last
-- call was less than p_every_seconds ago and nothing was left.
-- Each attempt is counted once, whenever its transaction commits: the position is a number of transactions, not a time.
-- Transactions that run already at the last call are noted in the position, and are counted when they are over, so
-- that no long transaction holds the figures up.  A younger one ends this call, and is counted in the next.
-- One call counts about p_most attempts, and never less than one transaction.  Attempts that ended before yesterday (UTC)
-- are not counted: the first call on an old history begins there.
-- Reads the history by its block ranges.  Writes pgqueue_rollup and pgqueue_rollup_position.
declare
    v_snapshot pg_snapshot := pg_current_snapshot();
    v_newest bigint := pg_snapshot_xmax(v_snapshot)::text::bigint;
    v_running bigint[] := array(select x::text::bigint from pg_snapshot_xip(v_snapshot) as x);
    v_since timestamptz := date_trunc('day', pgqueue_clock()) - interval '1 day';
    v_end timestamptz := date_trunc('day', pgqueue_clock()) + interval '2 days';
    v_position pgqueue_rollup_position;
    v_until bigint;
    v_still bigint[];
    v_over bigint[];
    v_last bigint;
    v_step bigint;
begin
    if p_most not between 1 and 1000000 or p_every_seconds not between 0 and 86400 then
        raise exception 'p_most is %, and p_every_seconds is %', p_most, p_every_seconds
            using errcode = 'invalid_parameter_value', hint = 'p_most is 1 to 1000000, and p_every_seconds is 0 to 86400.';
    end if;
    if exists (
        select from pgqueue_rollup_position p
        where p_every_seconds > 0
          and p.looked_at between pgqueue_clock() - p_every_seconds * interval '1 second' and pgqueue_clock()
    ) then
        return false;
    end if;
    select * into v_position from pgqueue_rollup_position for update skip locked;
    if not found then
        insert into pgqueue_rollup_position default values on conflict do nothing;
        return found;
    end if;
    if v_position.newest_id > v_newest then
        -- The tables were restored into another cluster, whose transactions have lower numbers.
        update pgqueue_rollup_position
        set transaction_id = v_newest, newest_id = v_newest, open_ids = '{}', looked_at = pgqueue_clock();
        return false;
    end if;
    v_until := least(v_newest, (select min(x) from unnest(v_running) as x where x >= v_position.newest_id));
    select a.id, a.transaction_id into v_last, v_step
    from pgqueue_attempt a
    where a.id > v_position.attempt_id and a.finished_at >= v_since and a.finished_at < v_end
    order by a.id offset p_most limit 1;
    if v_step is not null then
        v_until := greatest(v_position.transaction_id, least(v_until, v_step + 1));
    else
        select a.id into v_last
        from pgqueue_attempt a
        where a.id > v_position.attempt_id and a.finished_at >= v_since and a.finished_at < v_end
        order by a.id desc limit 1;
        v_until := greatest(v_position.transaction_id, v_until);
    end if;
    v_still := array(select x from unnest(v_running) as x where x < v_until order by x);
    v_over := array(select x from unnest(v_position.open_ids) as x where x <> all (v_running));
    with ended as materialized (
        select date_bin('5 minutes', a.finished_at, '2000-01-01 00:00:00+00') as starts_at, a.queue,
               nullif(a.task, '') as task,  -- the key of pgqueue_rollup knows no task without a name
               a.status, a.final, a.attempt,
               case when a.started_at is not null then greatest(0, least(
                   extract(epoch from a.started_at - a.created_at)::double precision * 1000,
                   extract(epoch from a.started_at)::double precision * 1000 - a.dequeue_at)) end as wait_ms,
               -- The end of a lost attempt is only when the loss was noticed.
               case when a.started_at is not null and a.status <> 'lost' then greatest(0,
                   extract(epoch from a.finished_at - a.started_at)::double precision * 1000) end as run_ms
        from (
            select n.* from pgqueue_attempt n
            where n.transaction_id >= v_position.transaction_id and n.transaction_id < v_until
              and n.finished_at >= v_since and n.finished_at < v_end and n.transaction_id <> all (v_still)
            union all
            select l.* from unnest(v_over) as o (transaction_id) cross join lateral (
                select n.* from pgqueue_attempt n
                where n.transaction_id = o.transaction_id and n.finished_at >= v_since and n.finished_at < v_end
            ) as l
        ) as a
    ),
    counted as materialized (
        select e.starts_at, e.queue, e.task,
               count(*) filter (where e.status = 'succeeded') as succeeded,
               count(*) filter (where e.status in ('deferred', 'suspended')) as deferred,
               count(*) filter (where e.status = 'retried') as retried,
               count(*) filter (where e.status = 'failed') as failed,
               count(*) filter (where e.status = 'cancelled') as cancelled,
               count(*) filter (where e.status = 'lost') as lost,
               count(*) filter (where e.final) as messages,
               coalesce(sum(e.attempt) filter (where e.final), 0) as message_attempts,
               coalesce(sum(e.wait_ms), 0) as wait_ms,
               coalesce(sum(e.run_ms), 0) as run_ms
        from ended e
        group by e.starts_at, e.queue, e.task
    ),
    bucket as materialized (
        select e.starts_at, e.queue, e.task, k.is_wait,
               ceil(ln(greatest(k.ms, 0.001)) / ln(1.05::double precision))::integer as bucket, count(*) as times
        from ended e cross join lateral (values (true, e.wait_ms), (false, e.run_ms)) as k (is_wait, ms)
        where k.ms is not null
        group by e.starts_at, e.queue, e.task, k.is_wait, 5
    ),
    size as (
        select * from (values (5::smallint, interval '5 minutes'), (60::smallint, interval '1 hour')) as s (minutes, width)
    ),
    total as (
        select s.minutes, date_bin(s.width, c.starts_at, '2000-01-01 00:00:00+00') as starts_at, c.queue, c.task,
               sum(c.succeeded) as succeeded, sum(c.deferred) as deferred, sum(c.retried) as retried,
               sum(c.failed) as failed, sum(c.cancelled) as cancelled, sum(c.lost) as lost, sum(c.messages) as messages,
               sum(c.message_attempts) as message_attempts, sum(c.wait_ms) as wait_ms, sum(c.run_ms) as run_ms
        from counted c cross join size s
        group by 1, 2, 3, 4
    ),
    histogram as (
        select t.minutes, t.starts_at, t.queue, coalesce(t.task, '') as task,
               jsonb_object_agg(t.bucket, t.times) filter (where t.is_wait) as waits,
               jsonb_object_agg(t.bucket, t.times) filter (where not t.is_wait) as runs
        from (
            select s.minutes, date_bin(s.width, b.starts_at, '2000-01-01 00:00:00+00') as starts_at, b.queue, b.task,
                   b.is_wait, b.bucket, sum(b.times) as times
            from bucket b cross join size s
            group by 1, 2, 3, 4, 5, 6
        ) as t
        group by 1, 2, 3, 4
    )
    insert into pgqueue_rollup as r (
        minutes, starts_at, queue, task, succeeded, deferred, retried, failed, cancelled, lost, messages,
        message_attempts, wait_ms, run_ms, wait_histogram, run_histogram)
    select t.*, coalesce(h.waits, '{}'), coalesce(h.runs, '{}')
    from total t
    left join histogram h
        on h.minutes = t.minutes and h.starts_at = t.starts_at and h.queue = t.queue and h.task = coalesce(t.task, '')
    on conflict (minutes, starts_at, queue, coalesce(task, '')) do update
    set succeeded = r.succeeded + excluded.succeeded, deferred = r.deferred + excluded.deferred,
        retried = r.retried + excluded.retried, failed = r.failed + excluded.failed,
        cancelled = r.cancelled + excluded.cancelled, lost = r.lost + excluded.lost,
        messages = r.messages + excluded.messages,
        message_attempts = r.message_attempts + excluded.message_attempts,
        wait_ms = r.wait_ms + excluded.wait_ms, run_ms = r.run_ms + excluded.run_ms,
        wait_histogram = pgqueue_histogram_sum(r.wait_histogram, excluded.wait_histogram),
        run_histogram = pgqueue_histogram_sum(r.run_histogram, excluded.run_histogram);
    update pgqueue_rollup_position
    set transaction_id = v_until, newest_id = v_newest, open_ids = v_still,
        attempt_id = coalesce(v_last, v_position.attempt_id),
        looked_at = case when v_step is null then pgqueue_clock() end;
    return v_step is not null;
end
$$;
