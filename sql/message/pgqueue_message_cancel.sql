create or replace function pgqueue_message_cancel(p_ids bigint[]) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Withdraws waiting messages: they leave the queue and are appended to the history as cancelled.  Returns the ids of
-- the withdrawn messages, whose children are withdrawn too, unless they have begun.  The id of one that runs, or has
-- ended, is missing in the result, and nothing happened to it.
-- Locks rows of pgqueue_message in the order of ids; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
    v_now bigint := pgqueue_now();
    v_ids bigint[] := '{}';
begin
    for v_message in
        delete from pgqueue_message m
        where m.id = any (p_ids) and coalesce(m.unlock_at, v_now) <= v_now
        returning m.*
    loop
        perform pgqueue_attempt_append(v_message, 'cancelled', true);
        v_ids := v_ids || v_message.id;
        return next v_message.id;
    end loop;
    perform pgqueue_child_cancel(v_ids);
end
$$;

create or replace function pgqueue_message_cancel(
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
-- Ends an attempt that the caller holds as cancelled, because it was asked to stop (pgqueue_message_request_cancel).
-- Returns true when done, false when the attempt is not the caller's any more and nothing happened.
declare
    v_message pgqueue_message;
begin
    delete from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    returning m.* into v_message;
    if not found then
        return false;
    end if;
    perform pgqueue_attempt_append(v_message, 'cancelled', true, pgqueue_attempt_error(p_error), p_started_at, p_finished_at);
    perform pgqueue_child_cancel(array[p_id]);
    return true;
end
$$;

create or replace function pgqueue_message_cancel(p_id bigint) returns boolean
language sql
set search_path from current
as $$
    -- Withdraws one waiting message.  Returns true when done, false when the message runs or has ended.
    select exists (select from pgqueue_message_cancel(array[p_id]))
$$;
