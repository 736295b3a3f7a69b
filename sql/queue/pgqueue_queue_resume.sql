create or replace function pgqueue_queue_resume(p_queue text) returns boolean
language plpgsql
set search_path from current
as $$
-- Resumes a paused queue and wakes a sleeping worker for it.  Returns false when it was not paused.
begin
    update pgqueue_queue q set paused_at = null, paused_by = null where q.name = p_queue and q.paused_at is not null;
    if not found then
        return false;
    end if;
    perform pgqueue_worker_wake(p_queue);
    return true;
end
$$;
