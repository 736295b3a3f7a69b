create or replace function pgqueue_child_keep(p_day date) returns integer
language plpgsql
set search_path from current
set timezone = 'UTC'
set enable_seqscan = off
set plan_cache_mode = 'force_custom_plan'
set jit = off
as $$
-- Prepares the drop of one day (UTC) of the history.  Returns how many rows of pgqueue_child and pgqueue_message it has
-- changed, at most 10,000 of each: call it until it returns 0, and drop the day then.
-- It copies the ends of children whose parents have not read them yet.
-- Nobody would know of a failure any more: a message that waits until others have succeeded (pgqueue_message_create_after)
-- is cancelled now where one of these others did not, on this day, though the rest of them have not ended.
-- A plan for known times, not for those of any day, opens and locks the partition of this day alone.  A lock for each
-- day and each of its indexes may be more than the server has, and then no day could be dropped.
-- Reads the day, and all after_ids of waiting messages: call it before a lock that others wait for.
-- Locks rows of pgqueue_message in the order of ids, then those of pgqueue_child; writes pgqueue_attempt, too.
declare
    v_from constant timestamptz := p_day::timestamptz;
    v_to constant timestamptz := (p_day + 1)::timestamptz;
    v_kept integer;
    v_cancelled integer := 0;
    v_waiting record;
    v_message pgqueue_message;
begin
    for v_waiting in
        select w.id, min(i.id) as failed_id
        from (
            select m.id, m.after_ids, m.after_policy from pgqueue_message m where m.awaited_id is not null
            union all
            select m.id, m.after_ids, m.after_policy from pgqueue_message m where m.check_at is not null and m.awaited_id is null
        ) as w
        cross join unnest(w.after_ids) as i (id)
        where w.after_policy = 'succeeded'
          and i.id in (
            select a.message_id from pgqueue_attempt a
            where a.final and a.status <> 'succeeded' and a.finished_at >= v_from and a.finished_at < v_to)
        group by w.id
        order by w.id
        limit 10000
    loop
        delete from pgqueue_message m
        where m.id = v_waiting.id and m.after_policy = 'succeeded'
        returning m.* into v_message;
        continue when not found;
        v_cancelled := v_cancelled + 1;
        v_message.dequeue_at := pgqueue_now();
        perform pgqueue_attempt_append(v_message, 'cancelled', true, jsonb_build_object(
            'class', 'django_pgqueue.exceptions.DependencyFailed',
            'message', format('message %s had to succeed first, but did not', v_waiting.failed_id)));
    end loop;
    update pgqueue_child c
    set status = e.status, error_class = e.error_class, error_message = e.error_message, result = e.result
    from (
        select k.message_id, k.parent_id, a.status, a.error_class, a.error_message, a.result
        from pgqueue_child k
        join pgqueue_attempt a on a.message_id = k.message_id
        where k.status is null and a.final and a.finished_at >= v_from and a.finished_at < v_to
        limit 10000
    ) as e
    where c.message_id = e.message_id and c.parent_id = e.parent_id;
    get diagnostics v_kept = row_count;
    return v_kept + v_cancelled;
end
$$;
