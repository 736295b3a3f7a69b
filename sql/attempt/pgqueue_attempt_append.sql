create or replace function pgqueue_attempt_append(
    p_message pgqueue_message,
    p_status text,
    p_final boolean,
    p_error jsonb default null,
    p_started_at timestamptz default null,
    p_finished_at timestamptz default null
) returns void
language sql
set search_path from current
as $$
    -- Appends a finished attempt to the history.  p_message is the row as it was while the attempt ran; p_error is
    -- {"class": ..., "message": ..., "traceback": ...} or null.  The functions that end attempts call this; consumers do not.
    insert into pgqueue_attempt (
        message_id, dequeue_at, created_at, started_at, finished_at, attempt, max_attempts, priority, final, status,
        queue, channel, task, unique_key, worker, error_class, error_message, traceback, content, headers)
    values (
        (p_message).id,
        coalesce(case when (p_message).parked_at is not null then coalesce((p_message).unknown_since, (p_message).parked_at) end,
                 (p_message).alone_at, (p_message).dequeue_at),
        (p_message).created_at, coalesce(p_started_at, (p_message).locked_at),
        coalesce(p_finished_at, pgqueue_clock()), (p_message).attempt, (p_message).max_attempts, (p_message).priority,
        p_final, p_status, (p_message).queue, (p_message).channel, (p_message).task, (p_message).unique_key,
        (p_message).worker,
        left(p_error ->> 'class', 255), left(p_error ->> 'message', 1000000),
        left(p_error ->> 'traceback', 1000000),
        -- Without what is too large to be read: it would break every query of the history that meets it.
        case when not p_final then null
             when pgqueue_message_is_large((p_message).content) then pgqueue_message_readable((p_message).content)
             else (p_message).content end,
        case when pgqueue_message_is_large((p_message).headers) then pgqueue_message_readable((p_message).headers)
             else (p_message).headers end)
$$;
