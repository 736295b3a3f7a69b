create or replace function pgqueue_message_create_item(p_message jsonb) returns bigint
language sql
set search_path from current
as $$
    -- Enqueues one object of the array that pgqueue_message_create_many takes, and returns the id of its message.
    select case
        when p_message ->> 'unique_key' is null then
            pgqueue_message_create(
                p_message -> 'content',
                coalesce(p_message ->> 'queue', 'default'),
                p_message ->> 'task',
                coalesce((p_message ->> 'priority')::integer, 0),
                (p_message ->> 'dequeue_at')::bigint,
                p_message ->> 'channel',
                nullif(p_message -> 'headers', 'null'),
                case when p_message ? 'max_attempts' then (p_message ->> 'max_attempts')::integer else 5 end,
                (p_message ->> 'max_lost')::integer,
                p_message ->> 'version')
        else (
            select u.p_id from pgqueue_message_create_unique(
                p_message ->> 'unique_key',
                p_message -> 'content',
                coalesce(p_message ->> 'queue', 'default'),
                p_message ->> 'task',
                coalesce((p_message ->> 'priority')::integer, 0),
                (p_message ->> 'dequeue_at')::bigint,
                p_message ->> 'channel',
                nullif(p_message -> 'headers', 'null'),
                case when p_message ? 'max_attempts' then (p_message ->> 'max_attempts')::integer else 5 end,
                coalesce(p_message ->> 'on_conflict', 'keep'),
                coalesce((p_message ->> 'until_started')::boolean, false),
                (p_message ->> 'max_lost')::integer,
                p_message ->> 'version') as u)
    end
$$;
