create or replace function pgqueue_message_lose(p_message pgqueue_message, p_reason text, p_blamed boolean) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Ends an attempt whose worker went away, and records it as lost.  The functions that detect this call it; the caller
-- has locked the row, and p_message is that row.
-- The task made no error: the attempt uses none of max_attempts up, and the message is ready again.  A message that was
-- lost max_lost times (null: 20), without an attempt in between that ended in order, fails, because it would go on
-- killing workers.
-- p_blamed: the worker died while it ran the message, which may be the cause.  Such a task is quarantined: from now on
-- pgqueue_quarantine_dequeue takes it, for a worker that holds nothing else.  False: the reason is not known, and a task
-- that was lost twice in a row is quarantined too.  Null: the worker stopped, and the message is not to blame; it counts
-- as one of the two all the same.
-- For a raw message the queue does not know whether its consumer died or gave up.  There a lost attempt counts like any
-- other, fails the message with the last of max_attempts (the 5th loss where it has none), and quarantines nothing.
-- Writes pgqueue_message and pgqueue_attempt.
declare
    v_raw boolean := p_message.task is null;
    v_lost integer := least(p_message.lost + 1, 32767);  -- a raw message may have more attempts than that
    v_used integer := v_lost;
    v_last integer := coalesce(p_message.max_lost, 20);
    v_alone boolean := not v_raw and (
        p_message.alone_at is not null or p_blamed is not null and (p_blamed or v_lost > 1));
    v_error jsonb;
begin
    if v_raw then
        v_last := coalesce(p_message.max_attempts, 5);
        v_used := case when p_message.max_attempts is null then v_lost else p_message.attempt end;
    end if;
    v_error := jsonb_build_object(
        'class', 'django_pgqueue.exceptions.AttemptLost',
        'message', format('%s (%s %s of %s)', p_reason, case when v_raw then 'attempt' else 'loss' end,
                          v_used, v_last));
    if p_message.cancel_requested_at is not null or v_used >= v_last then
        delete from pgqueue_message m where m.id = p_message.id;
        perform pgqueue_attempt_append(
            p_message, case when p_message.cancel_requested_at is null then 'failed' else 'cancelled' end, true, v_error);
        if p_message.cancel_requested_at is not null then
            perform pgqueue_child_cancel(array[p_message.id]);
        end if;
        return;
    end if;
    update pgqueue_message m
    set unlock_at = null, locked_at = null, worker = null, progress = null, last_error = v_error ->> 'message',
        lost = v_lost, unknown_since = null,
        max_attempts = m.max_attempts + case when not v_raw and m.max_attempts < 2000000000 then 1 else 0 end,
        alone_at = case when v_alone then m.dequeue_at end,
        dequeue_at = case when v_alone then 9223372036854775807 else m.dequeue_at end,
        in_line = not v_alone
    where m.id = p_message.id;
    perform pgqueue_attempt_append(p_message, 'lost', false, v_error);
end
$$;
