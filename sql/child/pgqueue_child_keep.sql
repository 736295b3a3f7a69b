create or replace function pgqueue_child_keep(p_day date) returns integer
language sql
set search_path from current
set timezone = 'UTC'
as $$
    -- Copies the ends of children from one day (UTC) of the history, which is about to be dropped: their parents have
    -- not read them yet.  Returns how many.
    with kept as (
        update pgqueue_child c
        set status = a.status, error_class = a.error_class, error_message = a.error_message, result = a.result
        from pgqueue_attempt a
        where c.status is null and a.message_id = c.message_id and a.final
          and a.finished_at >= p_day::timestamptz and a.finished_at < (p_day + 1)::timestamptz
        returning 1
    )
    select count(*)::integer from kept
$$;
