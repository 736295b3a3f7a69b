create or replace function pgqueue_message_unpark(
    p_queues text[],
    p_tasks text[],
    p_limit integer default 100,
    p_ids bigint[] default '{}'
) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Makes parked messages ready again: those of p_ids, and of each pair of p_queues and p_tasks an equal share of p_limit,
-- those first that were parked longest ago.  Returns how many.  Each gets the place in its queue that belongs to the time since when it
-- is unknown; a quarantined message is taken alone from now on.
-- A worker that knows these tasks calls this right before it dequeues, in the same transaction, for as many as it has
-- slots for: so no other worker that lacks them gets hold of them in between.  It wakes nobody.
-- Locks rows of pgqueue_message without waiting for any.
declare
    v_share integer := ceil(p_limit::numeric / greatest(1, cardinality(p_tasks)));
    v_unparked integer;
begin
    update pgqueue_message u
    set parked_at = null, in_line = u.alone_at is null,
        dequeue_at = case when u.alone_at is null then coalesce(u.unknown_since, u.parked_at) else 9223372036854775807 end,
        alone_at = case when u.alone_at is not null then coalesce(u.unknown_since, u.parked_at) end
    where u.ctid = any (array(
        select n.ctid
        from unnest(p_queues, p_tasks) as p (queue, task)
        cross join lateral (
            select m.ctid
            from pgqueue_message m
            where m.parked_at is not null and m.queue = p.queue and m.task = p.task and m.unlock_at is null
            order by m.queue, m.task, m.parked_at
            limit v_share
            for no key update skip locked
        ) as n
        limit p_limit
    ) || array(
        select n.ctid
        from unnest(p_ids) as i (id)
        cross join lateral (
            select m.ctid from pgqueue_message m
            where m.id = i.id and m.parked_at is not null and m.unlock_at is null
            for no key update skip locked
        ) as n
    ));
    get diagnostics v_unparked = row_count;
    return v_unparked;
end
$$;
