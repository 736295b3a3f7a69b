create or replace function pgqueue_message_park(
    p_ids bigint[],
    p_attempts integer[],
    p_worker text,
    p_reasons text[],
    p_unknown boolean default true
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives back messages that the caller holds and cannot run, because it does not know the task or its parameters
-- differ: as pgqueue_message_release does, so the attempt does not count.  The messages are parked: no dequeue sees
-- them until a worker that knows them calls pgqueue_message_unpark.  p_reasons are for the people who look for the
-- cause, one for each id, and become last_error.  Returns the ids of the messages that were the caller's.
-- p_unknown false: the caller may run them, and leaves them to living workers of a later version.  Then they do not
-- count as unknown, never fail for that, and only workers of their version or a later one are woken.
-- Their dequeue_at is out of reach, and one less than that of messages that wait for others: so both can be counted
-- by index.
-- A raw message is ready again, because its consumers know no tasks.  One that was asked to stop is cancelled.
-- Wakes all sleeping workers of these queues that have not recorded that they lack the task (pgqueue_worker.lacks), or,
-- of unknown messages, that they refuse its arguments (refuses): the payload of that notification is empty, and no queue
-- has such a name.
-- Locks rows of pgqueue_message in the order of ids; reads pgqueue_worker without a row lock.
declare
    v_now bigint := pgqueue_now();
    v_ours bigint[] := array(select pgqueue_message_release(p_ids, p_attempts, p_worker));
    v_queues text[];
    v_tasks text[];
    v_versions text[];
begin
    with parked as (
        update pgqueue_message m
        set parked_at = v_now, in_line = false, dequeue_at = 9223372036854775806,
            unknown_since = case when p_unknown then coalesce(m.unknown_since, v_now) else m.unknown_since end,
            alone_at = case when m.alone_at is not null then 9223372036854775807 end,
            last_error = left(p_reasons[array_position(p_ids, m.id)], 2000)
        where m.id = any (v_ours) and m.worker is null and m.task is not null
        returning m.queue, m.task, case when not p_unknown then m.version end as version
    )
    select array_agg(d.queue), array_agg(d.task), array_agg(d.version) into v_queues, v_tasks, v_versions
    from (select distinct p.queue, p.task, p.version from parked p) as d;

    perform pg_notify('pgqueue_' || w.id, '')
    from pgqueue_worker w
    where w.tasks and w.asleep_until > v_now and w.id <> p_worker and exists (
        select from unnest(v_queues, v_tasks, v_versions) as p (queue, task, version)
        where (w.queues is null or p.queue = any (w.queues)) and p.queue <> all (w.exclude_queues)
          and p.task <> all (coalesce(w.lacks, '{}'))
          and case when p.version is null then p.task <> all (coalesce(w.refuses, '{}'))
                   else pgqueue_version_key(w.version) collate "C" >= pgqueue_version_key(p.version) collate "C" end
    );
    return query select n from unnest(v_ours) as n;
end
$$;
