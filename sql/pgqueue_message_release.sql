create or replace function pgqueue_message_release(p_ids bigint[], p_attempts integer[], p_worker text) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives back messages that the caller holds and has not started: they are ready again where they were in the queue,
-- and the attempt does not count.  Answers the ids that were given back.  One that somebody asked to cancel meanwhile
-- (pgqueue_message_request_cancel) is among them, but leaves the queue as cancelled.
-- Locks rows of pgqueue_message in the order of ids.  Nothing else goes to the history: there was no attempt.
declare
    v_message record;
    v_cancelled bigint[] := '{}';
begin
    for v_message in
        update pgqueue_message m
        set unlock_at = null, locked_at = null, worker = null, progress = null, attempt = m.attempt - 1
        where m.id = any (p_ids)
          and m.worker = p_worker
          and m.attempt = p_attempts[array_position(p_ids, m.id)]
        returning m.id, m.cancel_requested_at
    loop
        if v_message.cancel_requested_at is not null then
            v_cancelled := v_cancelled || v_message.id;
        end if;
        return next v_message.id;
    end loop;
    if v_cancelled <> '{}' then
        perform pgqueue_message_cancel(v_cancelled);
    end if;
end
$$;
