create or replace function pgqueue_edit_stop(p_id bigint, p_stopped_by text default session_user) returns boolean
language sql
set search_path from current
as $$
    -- Stops an edit.  What it has done stays done, and pgqueue_edit_resume lets it go on.  Returns whether it was stopped:
    -- false when it has finished, or was stopped before.  Waits for the step that runs at the time.
    with stopped as (
        update pgqueue_edit e
        set stopped_at = pgqueue_clock(), stopped_by = left(p_stopped_by, 63)
        where e.id = p_id and e.finished_at is null and e.stopped_at is null
        returning e.id
    )
    select exists (select from stopped)
$$;
