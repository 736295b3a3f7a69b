create or replace function pgqueue_message_fail(
    p_id bigint,
    p_attempt integer,
    p_worker text default null,
    p_error text default null,
    p_started_at timestamptz default null,
    p_finished_at timestamptz default null
) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives up a message that the caller holds, whatever attempts it has left: it leaves the queue and is appended to the
-- history as failed; pgqueue_attempt_enqueue can enqueue it again from there.  p_error: see pgqueue_message_defer.
-- Returns true when done, false when the attempt is not the caller's any more and nothing happened.
-- Locks one row; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
begin
    delete from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    returning m.* into v_message;
    if not found then
        return false;
    end if;
    perform pgqueue_attempt_append(v_message, 'failed', true, pgqueue_attempt_error(p_error), p_started_at, p_finished_at);
    return true;
end
$$;
