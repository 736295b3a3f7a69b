create or replace function pgqueue_child_keep(p_day date) returns integer
language plpgsql
set search_path from current
set timezone = 'UTC'
set plan_cache_mode = 'force_custom_plan'
as $$
-- Copies the ends of children from one day (UTC) of the history, which is about to be dropped: their parents have not
-- read them yet.  Returns how many.
-- Nobody would know of a failure any more: a message that waits until others have succeeded (pgqueue_message_create_after)
-- is cancelled now where one of these others did not, on this day, though the rest of them have not ended.
-- A plan for known times, not for those of any day, opens and locks the partition of this day alone.  A lock for each
-- day and each of its indexes may be more than the server has, and then no day could be dropped.
declare
    v_from constant timestamptz := p_day::timestamptz;
    v_to constant timestamptz := (p_day + 1)::timestamptz;
    v_kept integer;
    v_waiting record;
    v_message pgqueue_message;
begin
    update pgqueue_child c
    set status = a.status, error_class = a.error_class, error_message = a.error_message, result = a.result
    from pgqueue_attempt a
    where c.status is null and a.message_id = c.message_id and a.final
      and a.finished_at >= v_from and a.finished_at < v_to;
    get diagnostics v_kept = row_count;
    for v_waiting in
        select w.id, min(i.id) as failed_id
        from pgqueue_message w
        cross join unnest(w.after_ids) as i (id)
        where (w.awaited_id is not null or w.check_at is not null) and w.after_policy = 'succeeded'
          and i.id in (
            select a.message_id from pgqueue_attempt a
            where a.final and a.status <> 'succeeded' and a.finished_at >= v_from and a.finished_at < v_to)
        group by w.id
        order by w.id
    loop
        delete from pgqueue_message m
        where m.id = v_waiting.id and m.after_policy = 'succeeded'
        returning m.* into v_message;
        continue when not found;
        v_message.dequeue_at := pgqueue_now();
        perform pgqueue_attempt_append(v_message, 'cancelled', true, jsonb_build_object(
            'class', 'django_pgqueue.exceptions.DependencyFailed',
            'message', format('message %s had to succeed first, but did not', v_waiting.failed_id)));
    end loop;
    return v_kept;
end
$$;
