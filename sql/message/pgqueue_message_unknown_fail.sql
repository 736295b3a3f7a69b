create or replace function pgqueue_message_unknown_fail(
    p_queues text[],
    p_tasks text[],
    p_seconds integer default 3600,
    p_limit integer default 100
) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Fails parked messages that no worker has known for p_seconds, of each pair of p_queues and p_tasks an equal share of
-- p_limit.  Returns how many.  Their error names the living workers of the queue, all of which lack the task or refuse
-- its arguments, and the last reason.
-- While a living worker of the queue may take a task, because it does not record it in pgqueue_worker.lacks or refuses,
-- none of its messages fails: that worker may only be busy.  A worker records 50 tasks: where it lacks more, the next ones follow
-- when the messages of these are gone.  A worker that has not been seen for a minute, and has not announced so long a
-- silence, is gone.  A message that was parked within the last minute has that time to be found by those who lack some
-- messages of the task, and not all.  Where no worker lives, nobody was asked, and nothing fails.
-- Locks rows of pgqueue_message without waiting for any; writes pgqueue_message and pgqueue_attempt.
declare
    v_since bigint := pgqueue_now() - p_seconds * 1000::bigint;
    v_parked bigint := pgqueue_now() - least(p_seconds, 60) * 1000::bigint;
    v_share integer := ceil(p_limit::numeric / greatest(1, cardinality(p_tasks)));
    v_pair record;
    v_message pgqueue_message;
    v_failed integer := 0;
begin
    for v_pair in
        select p.queue, p.task, a.names
        from unnest(p_queues, p_tasks) as p (queue, task)
        cross join lateral (
            select m.unknown_since from pgqueue_message m
            where m.parked_at is not null and m.queue = p.queue and m.task = p.task
            order by m.queue, m.task, m.unknown_since limit 1
        ) as h
        cross join lateral (
            select count(*) filter (where p.task <> all (coalesce(w.lacks || w.refuses, '{}'))) as others,
                   count(*) as workers,
                   left(string_agg(format('%s on %s', w.id, w.hostname), ', '), 2000) as names
            from pgqueue_worker w
            where w.tasks and (w.seen_at > pgqueue_clock() - interval '1 minute' or w.silent_until > pgqueue_now())
              and (w.queues is null or p.queue = any (w.queues)) and p.queue <> all (w.exclude_queues)
        ) as a
        where h.unknown_since <= v_since and a.workers > 0 and a.others = 0
    loop
        for v_message in
            delete from pgqueue_message d
            where d.ctid = any (array(
                select m.ctid
                from pgqueue_message m
                where m.parked_at is not null and m.queue = v_pair.queue and m.task = v_pair.task
                  and m.unknown_since <= v_since and m.parked_at <= v_parked
                  and m.unlock_at is null
                order by m.queue, m.task, m.unknown_since
                limit v_share
                for update skip locked
            ))
            returning d.*
        loop
            perform pgqueue_attempt_append(v_message, 'failed', true, jsonb_build_object(
                'class', 'django_pgqueue.exceptions.UnknownTask',
                'message', format(
                    'No worker has known the task %s for %s seconds. Living workers of the queue %s that lack it: %s. The last reason: %s',
                    v_message.task, p_seconds, v_pair.queue, v_pair.names, v_message.last_error)));
            v_failed := v_failed + 1;
        end loop;
    end loop;
    return v_failed;
end
$$;
