create or replace function pgqueue_child_cancel(p_parent_ids bigint[]) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
-- Cancels the children of cancelled messages that have not begun (pgqueue_child.cancels), and returns how many.
-- The functions that cancel messages call this.
-- Locks rows of pgqueue_message without waiting for any; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
    v_count integer := 0;
begin
    for v_message in
        delete from pgqueue_message m
        where m.id = any (array(
            select w.id
            from pgqueue_child c
            cross join lateral (
                select d.id from pgqueue_message d
                where d.id = c.message_id and d.attempt = 0 and d.unlock_at is null
                for update skip locked
            ) as w
            where c.parent_id = any (p_parent_ids) and c.cancels))
        returning m.*
    loop
        perform pgqueue_attempt_append(v_message, 'cancelled', true, jsonb_build_object(
            'class', 'django_pgqueue.exceptions.TaskCancelled', 'message', 'the job that waited for it was cancelled'));
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;
