create or replace function pgqueue_step_enqueue(p_message_id bigint, p_step text, p_version text default null) returns bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
-- Enqueues an ended message of a durable task again, from one of its steps on, and returns the id of the new message.
-- The new message keeps the records of what was done before that step was first tried, and its children, so that it does
-- none of it again.  p_version is as in pgqueue_attempt_enqueue, which this function calls.  Its headers have the step as
-- "enqueued_from_step".  The records are those of attempt 1, so that its own first attempt is the second, which reads them.
-- Writes pgqueue_message, pgqueue_step and pgqueue_child.
declare
    v_attempt_id bigint;
    v_from timestamptz;
    v_attempt integer;
    v_place tid;  -- records of one moment: only a clock that stands still in a test makes them
    v_id bigint;
begin
    select a.id into v_attempt_id from pgqueue_attempt a
    where a.message_id = p_message_id and a.final and a.content is not null and a.task is not null
    order by a.id + 0 desc  -- by the index of messages: that of ids would be read from the newest of all on
    limit 1;
    if not found then
        raise exception 'message % has not ended, or the history does not have it any more', p_message_id
            using errcode = 'invalid_parameter_value', hint = 'Cancel it first, or enqueue the task anew.';
    end if;
    select s.attempt, s.finished_at, s.ctid into v_attempt, v_from, v_place from pgqueue_step s
    where s.message_id = p_message_id and s.name = p_step
    order by s.attempt, s.finished_at, s.ctid
    limit 1;
    if not found then
        raise exception 'message % has no step %', p_message_id, left(p_step, 100)
            using errcode = 'invalid_parameter_value', hint = 'Choose one that it has come to (pgqueue_step).';
    end if;
    select e.id into v_id from pgqueue_attempt_enqueue(array[v_attempt_id], p_version) as e (id);
    if v_id is null then
        raise exception 'the channel of message % is full, or was released', p_message_id
            using errcode = 'invalid_parameter_value', hint = 'Try again later, or set another limit (pgqueue_channel_set).';
    end if;
    update pgqueue_message m
    set attempt = 1, max_attempts = m.max_attempts + case when m.max_attempts < 2000000000 then 1 else 0 end,
        headers = m.headers || jsonb_build_object('enqueued_from_step', p_step)
    where m.id = v_id;
    -- A sleep that is over has no other record than that of its wait.
    insert into pgqueue_step (
        message_id, recorded_at, started_at, finished_at, until, attempt, kind, status, name, error, result)
    select v_id, pgqueue_clock(), s.started_at, s.finished_at, s.until, 1, s.kind, s.status, s.name, s.error, s.result
    from pgqueue_step s
    where s.message_id = p_message_id and (s.attempt, s.finished_at, s.ctid) < (v_attempt, v_from, v_place)
      and (s.status = 'done' or s.kind = 'sleep');
    insert into pgqueue_child (message_id, parent_id, created_at, cancels, status, error_class, error_message, result)
    select c.message_id, v_id, c.created_at, c.cancels, c.status, c.error_class, c.error_message, c.result
    from pgqueue_child c
    where c.parent_id = p_message_id and not c.by_after and c.created_at <= v_from;
    return v_id;
end
$$;
