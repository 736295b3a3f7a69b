create or replace function pgqueue_message_heartbeat(
    p_ids bigint[],
    p_attempts integer[],
    p_worker text,
    p_lock_ms bigint default 60000
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Extends locks that the caller holds: they now end p_lock_ms from now.  Returns the ids of the extended locks; a
-- message that is missing in the result was taken over, and its consumer should stop.
-- Locks rows of pgqueue_message in the order of ids.
begin
    if p_lock_ms not between -1000000000000 and 1000000000000 then
        raise exception 'p_lock_ms is %', p_lock_ms
            using errcode = 'invalid_parameter_value', hint = 'It must be milliseconds, at most 1000000000000.';
    end if;
    return query
    update pgqueue_message m
    set unlock_at = pgqueue_now() + p_lock_ms
    where m.id = any (p_ids)
      and m.worker = p_worker
      and m.attempt = p_attempts[array_position(p_ids, m.id)]
    returning m.id;
end
$$;

create or replace function pgqueue_message_heartbeat(
    p_id bigint,
    p_attempt integer,
    p_worker text default null,
    p_lock_ms bigint default 60000
) returns boolean
language sql
set search_path from current
as $$
    -- Extends one lock.  Returns true when done, false when the attempt is not the caller's any more.
    select exists (
        select from pgqueue_message_heartbeat(
            array[p_id], array[p_attempt], coalesce(p_worker, pgqueue_session_worker()), p_lock_ms))
$$;
