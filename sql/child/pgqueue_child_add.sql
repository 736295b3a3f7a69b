create or replace function pgqueue_child_add(
    p_id bigint,
    p_attempt integer,
    p_child_id bigint,
    p_worker text default null,
    p_cancels boolean default true
) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Records, in the transaction that enqueues the message p_child_id, that it is a child of a message that the caller
-- holds.  p_cancels: it is cancelled with its parent, unless it has begun.
-- Returns false when the attempt is not the caller's any more: the caller rolls back.
-- Locks one row of pgqueue_message as pgqueue_step_record does; writes pgqueue_child.
begin
    if p_child_id is null or p_child_id = p_id then
        raise exception 'p_child_id of the message % is %', p_id, quote_nullable(p_child_id)
            using errcode = 'invalid_parameter_value', hint = 'It must be the id of another message, which was just enqueued.';
    elsif p_cancels is null then
        raise exception 'p_cancels of the child % is null', p_child_id
            using errcode = 'invalid_parameter_value', hint = 'Pass true or false, or leave it out.';
    end if;
    perform from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    for key share;
    if not found then
        return false;
    end if;
    insert into pgqueue_child (message_id, parent_id, created_at, cancels)
    values (p_child_id, p_id, pgqueue_clock(), p_cancels)
    on conflict do nothing;
    return true;
end
$$;
