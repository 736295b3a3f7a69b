create or replace function pgqueue_child_keep(p_day date) returns integer
language plpgsql
set search_path from current
set timezone = 'UTC'
set plan_cache_mode = 'force_custom_plan'
as $$
-- Copies the ends of children from one day (UTC) of the history, which is about to be dropped: their parents have not
-- read them yet.  Returns how many.
-- A plan for known times, not for those of any day, opens and locks the partition of this day alone.  A lock for each
-- day and each of its indexes may be more than the server has, and then no day could be dropped.
declare
    v_from constant timestamptz := p_day::timestamptz;
    v_to constant timestamptz := (p_day + 1)::timestamptz;
    v_kept integer;
begin
    update pgqueue_child c
    set status = a.status, error_class = a.error_class, error_message = a.error_message, result = a.result
    from pgqueue_attempt a
    where c.status is null and a.message_id = c.message_id and a.final
      and a.finished_at >= v_from and a.finished_at < v_to;
    get diagnostics v_kept = row_count;
    return v_kept;
end
$$;
