create or replace function pgqueue_message_release(p_ids bigint[], p_attempts integer[], p_worker text) returns setof bigint
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Gives back messages that the caller holds and has not started: they are ready again where they were in the
    -- queue, and the attempt does not count.  Answers the ids that were given back.
    -- Locks rows of pgqueue_message in the order of ids.  Nothing goes to the history: there was no attempt.
    update pgqueue_message m
    set unlock_at = null, locked_at = null, worker = null, attempt = m.attempt - 1
    where m.id = any (p_ids)
      and m.worker = p_worker
      and m.attempt = p_attempts[array_position(p_ids, m.id)]
    returning m.id
$$;
