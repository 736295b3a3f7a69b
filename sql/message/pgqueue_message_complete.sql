create or replace function pgqueue_message_complete(
    p_ids bigint[],
    p_attempts integer[],
    p_worker text,
    p_results jsonb[] default null,
    p_started_ats timestamptz[] default null,
    p_finished_ats timestamptz[] default null
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Ends attempts as succeeded: the messages leave the queue and are appended to the history.  Returns the ids of the
-- ended attempts; an id that is missing in the result was not the caller's any more, and nothing happened to it.
-- The arrays are parallel and sorted by id.  Row locks are taken in the order of ids (as in every function that
-- locks several messages), so that calls never deadlock with each other.
-- Writes pgqueue_message and pgqueue_attempt in one statement.
--
-- The fence does not name unlock_at: worker is enough (it is null when the message is not locked), and a condition
-- on unlock_at would let the planner use pgqueue_message_locked_ix and read every locked row.  The session keeps
-- the plan: to make it took as long as to end an attempt.
begin
    return query
    with given as materialized (
        select *
        from unnest(p_ids, p_attempts, p_results, p_started_ats, p_finished_ats)
            as g (id, attempt, result, started_at, finished_at)
    ),
    ended as (
        delete from pgqueue_message m
        using given g
        where m.id = any (p_ids)
          and m.id = g.id
          and m.attempt = g.attempt
          and m.worker = p_worker
        returning m.*, g.result, g.started_at as begun_at, g.finished_at
    )
    insert into pgqueue_attempt (
        message_id, dequeue_at, created_at, started_at, finished_at, attempt, max_attempts, priority, final, status,
        queue, channel, task, unique_key, worker, result, content, headers)
    select e.id, e.dequeue_at, e.created_at, coalesce(e.begun_at, e.locked_at),
           coalesce(e.finished_at, pgqueue_clock()),
           e.attempt, e.max_attempts, e.priority, true, 'succeeded',
           e.queue, e.channel, e.task, e.unique_key, e.worker,
           case when pgqueue_message_is_large(e.result) then pgqueue_message_readable(e.result, 'result')
                else e.result end,
           e.content, e.headers
    from ended e
    order by e.id
    returning message_id;
end
$$;

create or replace function pgqueue_message_complete(
    p_id bigint,
    p_attempt integer,
    p_worker text default null,
    p_result jsonb default null
) returns boolean
language sql
set search_path from current
as $$
    -- Ends one attempt as succeeded.  Returns true when done, false when the attempt is not the caller's any more.
    select exists (
        select from pgqueue_message_complete(
            array[p_id], array[p_attempt], coalesce(p_worker, pgqueue_session_worker()), array[p_result]))
$$;
