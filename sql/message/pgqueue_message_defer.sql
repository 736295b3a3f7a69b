create or replace function pgqueue_message_defer(
    p_id bigint,
    p_attempt integer,
    p_worker text default null,
    p_dequeue_at bigint default null,
    p_state jsonb default null,
    p_error text default null,
    p_started_at timestamptz default null,
    p_finished_at timestamptz default null,
    p_max_attempts integer default 1
) returns text
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Puts a message that the caller holds back into the queue, to be dequeued again from p_dequeue_at on (epoch ms; null:
-- at once).  The next attempt finds p_state in the column state (null: the column keeps its value).  A worker of a later
-- version than the message's leaves its version with the state: earlier ones may not understand it.
-- p_error: the attempt ended in an error, a text or {"class": ..., "message": ..., "traceback": ...} as JSON.  Then this is a
-- retry, and when max_attempts (p_max_attempts, where it is null) is reached the message fails instead.  Without an
-- error no attempt is used up: a message may be deferred any number of times.
-- An attempt that ends like this has not killed its worker: the message leaves its quarantine (pgqueue_message_lose).
-- A message that was asked to stop (pgqueue_message_request_cancel) is cancelled instead.
-- Returns what was recorded: deferred, retried, failed or cancelled; null: the attempt is not the caller's any more, and
-- nothing happened.
-- Locks one row; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
    v_status text := case when p_error is null then 'deferred' else 'retried' end;
    v_now bigint := pgqueue_now();
    v_used integer;
    v_version text;
    v_error jsonb := pgqueue_attempt_error(p_error);
begin
    select m.* into v_message
    from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    for update;
    if not found then
        return null;
    end if;

    v_used := v_message.attempt;
    if p_error is not null and v_message.max_attempts is null and p_max_attempts > 1 then
        -- Deferring, and losing a task, raises max_attempts, so that neither uses an attempt up.  Here max_attempts is
        -- null, so nothing was raised.
        v_used := 1 + (
            select count(*) from pgqueue_attempt a
            where a.message_id = p_id and a.status not in ('deferred', 'suspended') and (a.status <> 'lost' or v_message.task is null));
    end if;

    if v_message.cancel_requested_at is not null then
        v_status := 'cancelled';
        delete from pgqueue_message m where m.id = p_id;
        perform pgqueue_child_cancel(array[p_id]);
    elsif p_error is not null and v_used >= coalesce(v_message.max_attempts, p_max_attempts) then
        v_status := 'failed';
        delete from pgqueue_message m where m.id = p_id;
    else
        if p_state is not null then
            p_state := pgqueue_message_readable(p_state, 'state');
            select w.version into v_version
            from pgqueue_worker w
            where w.id = v_message.worker and w.version is not null
              and (v_message.version is null
                   or pgqueue_version_key(w.version) collate "C" > pgqueue_version_key(v_message.version) collate "C");
        end if;
        update pgqueue_message m
        set unlock_at = null, locked_at = null, worker = null, progress = null,
            dequeue_at = coalesce(p_dequeue_at, v_now), in_line = coalesce(p_dequeue_at, v_now) <= v_now,
            alone_at = null, lost = 0, unknown_since = null,
            state = coalesce(p_state, m.state), version = coalesce(v_version, m.version),
            max_attempts = m.max_attempts + case when p_error is null and m.max_attempts < 2000000000 then 1 else 0 end,
            last_error = left(coalesce(v_error ->> 'message', v_error ->> 'class', m.last_error), 1000000)
        where m.id = p_id;
    end if;
    perform pgqueue_attempt_append(v_message, v_status, v_status in ('failed', 'cancelled'), v_error, p_started_at, p_finished_at);
    return v_status;
end
$$;
