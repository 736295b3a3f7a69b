create or replace function pgqueue_message_release(p_ids bigint[], p_attempts integer[], p_worker text) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives back messages that the caller holds and has not begun: they are ready again at their old places, and the
-- attempt does not count.  Returns the ids of these messages.  A message that was asked to stop meanwhile
-- (pgqueue_message_request_cancel) is among them, but leaves the queue as cancelled.  A message that holds its unique
-- key until it starts gets the key back, unless another message holds it now, or is just about to.
-- Locks rows of pgqueue_message in the order of ids.  Only cancelled messages go to the history: there was no attempt.
declare
    v_message record;
    v_withdrawn pgqueue_message;
    v_cancelled bigint[] := '{}';
    v_keyed bigint[];
    v_keys text[];
    v_lock_timeout text := current_setting('lock_timeout');
begin
    select array_agg(m.id order by m.id), array_agg(m.unique_key order by m.id) into v_keyed, v_keys
    from pgqueue_message m
    where m.id = any (p_ids) and m.worker = p_worker and m.unique_key is not null
      and m.unique_until_started and m.attempt = 1;

    for v_message in
        update pgqueue_message m
        set unlock_at = null, locked_at = null, worker = null, progress = null,
            attempt = greatest(m.attempt, 1) - 1,
            dequeue_at = case when m.alone_at is null then m.dequeue_at else 9223372036854775807 end,
            in_line = m.alone_at is null,
            -- Another message may hold the key that this one would hold again, and that must not stop the release.
            unique_key = case when not m.unique_until_started or m.attempt > 1 then m.unique_key end
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

    -- Another transaction that takes the same key may last long, and a worker has no time to wait for its end.
    perform set_config('lock_timeout', '10ms', true) where v_keyed is not null;
    for v_message in
        select k.id, k.unique_key from unnest(v_keyed, v_keys) as k (id, unique_key)
    loop
        begin
            update pgqueue_message m set unique_key = v_message.unique_key
            where m.id = v_message.id and m.attempt = 0 and m.worker is null and m.unique_key is null;
        exception
            when unique_violation or lock_not_available then null;
        end;
    end loop;
    perform set_config('lock_timeout', v_lock_timeout, true) where v_keyed is not null;

    -- Consumers may not call pgqueue_message_cancel(bigint[]).
    for v_withdrawn in
        delete from pgqueue_message m where m.id = any (v_cancelled) returning m.*
    loop
        perform pgqueue_attempt_append(v_withdrawn, 'cancelled', true);
    end loop;
    perform pgqueue_child_cancel(v_cancelled) where v_cancelled <> '{}';
end
$$;
