create or replace function pgqueue_message_cancel(p_ids bigint[]) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Withdraws messages that wait: they leave the queue and are appended to the history as cancelled.  Answers the ids
-- that were withdrawn; one that runs, or has ended, is missing in the answer and nothing happened to it.
-- Locks rows of pgqueue_message in the order of ids; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
    v_now bigint := pgqueue_now();
begin
    for v_message in
        delete from pgqueue_message m
        where m.id = any (p_ids) and coalesce(m.unlock_at, v_now) <= v_now
        returning m.*
    loop
        perform pgqueue_attempt_append(v_message, 'cancelled', true);
        return next v_message.id;
    end loop;
end
$$;

create or replace function pgqueue_message_cancel(p_id bigint) returns boolean
language sql
set search_path from current
as $$
    -- Withdraws one message that waits.  True: done.  False: it runs, or has ended.
    select exists (select from pgqueue_message_cancel(array[p_id]))
$$;
