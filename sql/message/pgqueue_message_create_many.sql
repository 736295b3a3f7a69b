create or replace function pgqueue_message_create_many(p_messages jsonb) returns setof bigint
language plpgsql
set search_path from current
as $$
-- Enqueues many messages with one statement and returns their ids, in the order of the array.  The id of a message that
-- its channel refuses (pgqueue_channel_room) is null.  p_messages is an array of objects with the parameters of
-- pgqueue_message_create as keys; only content is required:
--   [{"content": {"n": 1}, "queue": "mail", "priority": 5, "dequeue_at": 0}, ...]
-- Absent keys have the defaults of pgqueue_message_create; "max_attempts": null means, as there, no further attempt
-- after an error.  Objects may also have "unique_key", "on_conflict" and "until_started", as in
-- pgqueue_message_create_unique: these are enqueued one by one, in the order of their keys, so that two calls with the
-- same keys never deadlock.  For several such calls in one transaction see pgqueue_message_lock_keys.
-- Any other key is an error, and nothing is enqueued: otherwise "prio" would be ignored silently.
-- Writes pgqueue_message; wakes one sleeping worker for each queue that got a ready message.
declare
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
    v_queue text;
    v_item record;
    v_ids bigint[];
    v_rooms jsonb;  -- of channels that may become full: name, how many more they take
    v_kept integer[];  -- the positions of the accepted messages, where one may be refused
    v_messages jsonb := p_messages;
    v_keys constant text[] := array[
        'content', 'queue', 'task', 'priority', 'dequeue_at', 'channel', 'headers', 'max_attempts', 'max_lost',
        'version', 'unique_key', 'on_conflict', 'until_started'];
begin
    if jsonb_typeof(p_messages) <> 'array' then
        raise exception 'p_messages is not an array, but of type %', jsonb_typeof(p_messages)
            using errcode = 'invalid_parameter_value', hint = 'Put one message into an array, too: [{"content": ...}].';
    end if;
    select m.position, m.item into v_item
    from jsonb_array_elements(p_messages) with ordinality as m (item, position)
    where case jsonb_typeof(m.item) when 'object' then m.item - v_keys <> '{}' else true end
    limit 1;
    if found then
        raise exception 'message % of the array is not an object, or has unknown keys: %',
            v_item.position,
            case jsonb_typeof(v_item.item) when 'object' then (v_item.item - v_keys)::text else v_item.item::text end
            using errcode = 'invalid_parameter_value', hint = 'The keys are ' || array_to_string(v_keys, ', ') || '.';
    end if;

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

    select jsonb_object_agg(c.channel, c.room) into v_rooms
    from (
        select n.channel, pgqueue_channel_room(n.channel) as room
        from (select distinct m.item ->> 'channel' from jsonb_array_elements(p_messages) as m (item)) as n (channel)
        where n.channel is not null
    ) as c
    where c.room is not null;
    if v_rooms is not null then
        v_kept := array(
            select k.position
            from (
                select m.position::integer, m.item ->> 'channel' as channel,
                       row_number() over (partition by m.item ->> 'channel' order by m.position) as place
                from jsonb_array_elements(p_messages) with ordinality as m (item, position)
            ) as k
            where (k.place <= (v_rooms ->> k.channel)::integer) is not false
            order by k.position);
        v_messages := (
            select coalesce(jsonb_agg(p_messages -> (k.position - 1) order by k.number), '[]')
            from unnest(v_kept) with ordinality as k (position, number));
    end if;

    with created as (
        insert into pgqueue_message (
            content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost, version, created_at,
            in_line)
        select case when pgqueue_message_is_large(m.item -> 'content')
                    then pgqueue_message_readable(m.item -> 'content', 'content')
                    else m.item -> 'content' end,
               coalesce(m.item ->> 'queue', 'default'),
               m.item ->> 'task',
               coalesce((m.item ->> 'priority')::integer, 0),
               coalesce((m.item ->> 'dequeue_at')::bigint, v_now),
               m.item ->> 'channel',
               case when pgqueue_message_is_large(m.item -> 'headers')
                    then pgqueue_message_readable(m.item -> 'headers', 'headers')
                    else nullif(m.item -> 'headers', 'null') end,
               case when m.item ? 'max_attempts' then (m.item ->> 'max_attempts')::integer else 5 end,
               (m.item ->> 'max_lost')::smallint,
               m.item ->> 'version',
               v_clock,
               coalesce((m.item ->> 'dequeue_at')::bigint, v_now) <= v_now
        from jsonb_array_elements(v_messages) with ordinality as m (item, position)
        order by m.position
        returning id
    )
    select array_agg(c.id) into v_ids from created c;
    if v_kept is null then
        return query select unnest(v_ids);
    else
        return query
        select v_ids[k.number]
        from generate_series(1, jsonb_array_length(p_messages)) as p (position)
        left join unnest(v_kept) with ordinality as k (position, number) on k.position = p.position
        order by p.position;
    end if;

    for v_queue in
        select distinct coalesce(m.item ->> 'queue', 'default')
        from jsonb_array_elements(v_messages) as m (item)
        where coalesce((m.item ->> 'dequeue_at')::bigint, v_now) <= v_now
    loop
        perform pgqueue_worker_wake(v_queue);
    end loop;
    if exists (select from pgqueue_worker w where w.silent_until is not null) then
        perform pgqueue_worker_wake_by(l.queue, null, l.dequeue_at)
        from (
            select coalesce(m.item ->> 'queue', 'default') as queue, min((m.item ->> 'dequeue_at')::bigint) as dequeue_at
            from jsonb_array_elements(v_messages) as m (item)
            where (m.item ->> 'dequeue_at')::bigint > v_now
            group by 1
        ) as l;
    end if;
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
    p_max_attempts integer default 5,
    p_max_lost integer default null,
    p_version text default null
) returns setof bigint
language plpgsql
set search_path from current
as $$
-- Enqueues a message for each content of the array p_contents, all with the same other parameters.  Returns their ids,
-- in the order of the array.  This is the fastest way to enqueue.  Where p_channel refuses messages
-- (pgqueue_channel_room), those are the last ones, and their ids are null.
declare
    v_room integer := case when p_channel is not null then pgqueue_channel_room(p_channel) end;
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
begin
    if jsonb_typeof(p_contents) <> 'array' then
        raise exception 'p_contents is not an array, but of type %', jsonb_typeof(p_contents)
            using errcode = 'invalid_parameter_value', hint = 'Put one content into an array, too: [...].';
    end if;
    if pgqueue_message_is_large(p_headers) then
        p_headers := pgqueue_message_readable(p_headers, 'headers');
    end if;
    return query
    insert into pgqueue_message (
        content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost, version, created_at,
        in_line)
    select case when pgqueue_message_is_large(c.content) then pgqueue_message_readable(c.content, 'content')
                else c.content end,
           p_queue, p_task, p_priority, coalesce(p_dequeue_at, v_now), p_channel, p_headers, p_max_attempts, p_max_lost,
           p_version, v_clock, coalesce(p_dequeue_at, v_now) <= v_now
    from jsonb_array_elements(p_contents) with ordinality as c (content, position)
    where v_room is null or c.position <= v_room
    order by c.position
    returning id;
    if found and coalesce(p_dequeue_at, v_now) <= v_now then
        perform pgqueue_worker_wake(p_queue, p_task is not null);
    elsif found then
        perform pgqueue_worker_wake_by(p_queue, p_task is not null, p_dequeue_at);
    end if;
    return query select null::bigint from generate_series(v_room + 1, jsonb_array_length(p_contents));
end
$$;
