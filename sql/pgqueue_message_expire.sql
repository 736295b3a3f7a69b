create or replace function pgqueue_message_expire(p_limit integer default 100) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
-- Takes messages whose lock ran out away from consumers that went away, and answers how many.  Each such attempt is
-- recorded as lost and the message is ready again, unless it has had max_attempts (5 where it has none): then it
-- fails, instead of killing consumers for ever.
-- pgqueue_message_dequeue calls this; nobody else has to.  Locks rows of pgqueue_message without waiting for any;
-- writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
    v_now bigint := pgqueue_now();
    v_count integer := 0;
    v_used integer;
    v_last integer;
    v_error jsonb;
begin
    for v_message in
        select m.* from pgqueue_message m
        where m.unlock_at is not null and m.unlock_at <= v_now
        order by m.unlock_at
        limit p_limit
        for update skip locked
    loop
        v_used := v_message.attempt;
        v_last := v_message.max_attempts;
        if v_last is null then
            -- Deferring raises max_attempts with each attempt, so that it uses none up.  Where there is nothing to raise,
            -- only the attempts that were lost count.
            v_last := 5;
            -- A filter and no condition: pgqueue_attempt_error_ix would be read from end to end for it.
            v_used := 1 + (
                select count(*) filter (where a.status = 'lost') from pgqueue_attempt a where a.message_id = v_message.id);
        end if;
        v_error := jsonb_build_object(
            'class', 'django_pgqueue.exceptions.AttemptLost',
            'message', format('the lock of worker %s ran out at %s (attempt %s of %s)', v_message.worker,
                              pgqueue_from_epoch(v_message.unlock_at) at time zone 'UTC' || ' UTC',
                              v_used, v_last));
        if v_message.cancel_requested_at is not null or v_used >= v_last then
            delete from pgqueue_message m where m.id = v_message.id;
            perform pgqueue_attempt_append(
                v_message, case when v_message.cancel_requested_at is null then 'failed' else 'cancelled' end, true, v_error);
        else
            update pgqueue_message m
            set unlock_at = null, locked_at = null, worker = null, progress = null, last_error = v_error ->> 'message'
            where m.id = v_message.id;
            perform pgqueue_attempt_append(v_message, 'lost', false, v_error);
        end if;
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;
