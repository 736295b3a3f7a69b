create or replace function pgqueue_message_create(
    p_content jsonb,
    p_queue text default 'default',
    p_task text default null,
    p_priority integer default 0,
    p_dequeue_at bigint default null,
    p_channel text default null,
    p_headers jsonb default null,
    p_max_attempts integer default 5,
    p_max_lost integer default null,
    p_version text default null
) returns bigint
language plpgsql
set search_path from current
as $$
-- Enqueues one message in the caller's transaction and returns its id, or null when p_channel is full or was released
-- (pgqueue_channel_room) and nothing was enqueued.  The message can be dequeued from p_dequeue_at on (epoch ms; null:
-- at once; historical or negative values go ahead of others of the same priority).  Without p_task it is a raw
-- message, for consumers of your own.  p_max_attempts null: no further attempt after an error.
-- p_max_lost: a task fails when its worker has died so many times in a row while it ran (null: 20 times).
-- p_version: the version of the deploy that enqueues it.  Workers of an earlier version (pgqueue_version_key) leave it
-- to others, while workers of this version or a later one live.
-- Writes pgqueue_message; a ready message wakes a sleeping worker, a later one those that would rest past its time.
declare
    v_id bigint;
    v_now bigint := pgqueue_now(now());  -- the transaction's time: its messages share it and are FIFO by id
begin
    if p_channel is not null and pgqueue_channel_room(p_channel) <= 0 then
        return null;
    end if;
    insert into pgqueue_message (content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost,
                                 version, created_at, in_line)
    values (case when pgqueue_message_is_large(p_content) then pgqueue_message_readable(p_content, 'content')
                 else p_content end,
            p_queue, p_task, p_priority, coalesce(p_dequeue_at, v_now), p_channel,
            case when pgqueue_message_is_large(p_headers) then pgqueue_message_readable(p_headers, 'headers')
                 else p_headers end,
            p_max_attempts, p_max_lost, p_version, pgqueue_clock(now()), coalesce(p_dequeue_at, v_now) <= v_now)
    returning id into v_id;
    if coalesce(p_dequeue_at, v_now) <= v_now then
        perform pgqueue_worker_wake(p_queue, p_task is not null);
    else
        perform pgqueue_worker_wake_by(p_queue, p_task is not null, p_dequeue_at);
    end if;
    return v_id;
end
$$;
