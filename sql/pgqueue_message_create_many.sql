create or replace function pgqueue_message_create_many(p_messages jsonb) returns setof bigint
language plpgsql
set search_path from current
as $$
-- Enqueues many messages with one statement and answers their ids, in the order of the array.  p_messages is an array
-- of objects with the parameters of pgqueue_message_create as keys, content alone required:
--   [{"content": {"n": 1}, "queue": "mail", "priority": 5, "dequeue_at": 0}, ...]
-- Absent keys have the defaults of pgqueue_message_create; "max_attempts": null stands, as there, for "never again
-- after an error".  Objects may also have "unique_key", "on_conflict" and "until_started", as in
-- pgqueue_message_create_unique: these are enqueued one by one, in the order of their keys, so that two calls with the
-- same keys never deadlock.  Where one transaction makes several such calls: see pgqueue_message_lock_keys.
-- Writes pgqueue_message; wakes one sleeping worker for each queue that got a ready message.
declare
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
    v_queue text;
    v_item record;
    v_ids bigint[];
begin
    if jsonb_path_exists(p_messages, '$[*].unique_key ? (@ != null)') then
        perform pgqueue_message_lock_keys(t.task)
        from (select distinct m.item ->> 'task' as task from jsonb_array_elements(p_messages) as m (item) order by 1) as t;
        for v_item in
            select m.item, m.position::integer
            from jsonb_array_elements(p_messages) with ordinality as m (item, position)
            order by m.item ->> 'unique_key' collate "C" nulls first, m.position
        loop
            v_ids[v_item.position] := pgqueue_message_create_item(v_item.item);
        end loop;
        return query select unnest(v_ids);
        return;
    end if;

    return query
    insert into pgqueue_message (content, queue, task, priority, dequeue_at, channel, headers, max_attempts, created_at)
    select m.item -> 'content',
           coalesce(m.item ->> 'queue', 'default'),
           m.item ->> 'task',
           coalesce((m.item ->> 'priority')::integer, 0),
           coalesce((m.item ->> 'dequeue_at')::bigint, v_now),
           m.item ->> 'channel',
           nullif(m.item -> 'headers', 'null'),
           case when m.item ? 'max_attempts' then (m.item ->> 'max_attempts')::integer else 5 end,
           v_clock
    from jsonb_array_elements(p_messages) with ordinality as m (item, position)
    order by m.position
    returning id;

    for v_queue in
        select distinct coalesce(m.item ->> 'queue', 'default')
        from jsonb_array_elements(p_messages) as m (item)
        where coalesce((m.item ->> 'dequeue_at')::bigint, v_now) <= v_now
    loop
        perform pgqueue_worker_wake(v_queue);
    end loop;
end
$$;

create or replace function pgqueue_message_create_many(
    p_contents jsonb,
    p_queue text,
    p_task text default null,
    p_priority integer default 0,
    p_dequeue_at bigint default null,
    p_channel text default null,
    p_headers jsonb default null,
    p_max_attempts integer default 5
) returns setof bigint
language plpgsql
set search_path from current
as $$
-- Enqueues a message for each content of the array p_contents, all with the same other parameters, and answers their
-- ids, in the order of the array.  The fastest way in.
declare
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
begin
    return query
    insert into pgqueue_message (content, queue, task, priority, dequeue_at, channel, headers, max_attempts, created_at)
    select c.content, p_queue, p_task, p_priority, coalesce(p_dequeue_at, v_now), p_channel, p_headers, p_max_attempts, v_clock
    from jsonb_array_elements(p_contents) with ordinality as c (content, position)
    order by c.position
    returning id;
    if found and coalesce(p_dequeue_at, v_now) <= v_now then
        perform pgqueue_worker_wake(p_queue);
    end if;
end
$$;
