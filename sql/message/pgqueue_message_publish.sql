create or replace function pgqueue_message_publish(
    p_exchange text,
    p_routing_key text,
    p_content jsonb,
    p_headers jsonb default null,
    p_priority integer default null,
    p_dequeue_at bigint default null,
    p_unknown_ok boolean default false,
    p_version text default null
) returns table (p_id bigint, p_queue text, p_task text)
language plpgsql
set search_path from current
as $$
-- Enqueues one message in every queue that is bound to the exchange with a pattern that matches the routing key, in the
-- caller's transaction.  Returns the enqueued messages: no row when nothing matches (see pgqueue_exchange_route).
-- The headers get the keys exchange and routing_key.  A message for a task has the content
-- {"args": [p_content, p_routing_key], "kwargs": {}}.
--   p_priority     null: the priority of the binding
--   p_dequeue_at   as in pgqueue_message_create
--   p_unknown_ok   true: for an unknown exchange it returns one row of nulls; false: that is an error
--   p_version      as in pgqueue_message_create; raw messages get none
-- Reads pgqueue_exchange and pgqueue_binding without row locks and writes pgqueue_message: a publisher waits for no
-- other session, and none waits for it.  Wakes one sleeping consumer for each queue that got a ready message.
declare
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
    v_headers jsonb := coalesce(p_headers, '{}')
        || jsonb_build_object('exchange', p_exchange, 'routing_key', p_routing_key);
    v_is_ready boolean := coalesce(p_dequeue_at, v_now) <= v_now;
    v_woken_queue text;
    v_woken_tasks boolean;
begin
    if not exists (select from pgqueue_exchange e where e.name = p_exchange) then
        if p_unknown_ok then
            return next;
            return;
        end if;
        raise exception 'there is no exchange "%"', p_exchange
            using errcode = 'undefined_object',
                  hint = format('Create it first: select pgqueue_exchange_declare(%L).', p_exchange);
    elsif p_routing_key is null or octet_length(p_routing_key) > 255 then
        raise exception 'the routing key "%" is not a text of at most 255 bytes', p_routing_key
            using errcode = 'invalid_parameter_value';
    end if;
    if pgqueue_message_is_large(p_content) or pgqueue_message_is_large(v_headers) then
        p_content := pgqueue_message_readable(p_content, 'content');
        v_headers := pgqueue_message_readable(v_headers, 'headers');
    end if;

    for p_id, p_queue, p_task in
        insert into pgqueue_message as m (
            content, queue, task, priority, dequeue_at, headers, max_attempts, version, created_at, in_line)
        select case
                   when r.task is null then p_content
                   else jsonb_build_object('args', jsonb_build_array(p_content, p_routing_key), 'kwargs', '{}'::jsonb)
               end,
               r.queue, r.task, coalesce(p_priority, r.priority), coalesce(p_dequeue_at, v_now), v_headers,
               r.max_attempts, case when r.task is not null then p_version end, v_clock, v_is_ready
        from pgqueue_exchange_route(p_exchange, p_routing_key) as r (queue, task, priority, max_attempts)
        returning m.id, m.queue, m.task
    loop
        -- The messages come in the order of their queues: one sleeper for each queue is enough.
        if (p_queue, p_task is not null) is distinct from (v_woken_queue, v_woken_tasks) then
            v_woken_queue := p_queue;
            v_woken_tasks := p_task is not null;
            if v_is_ready then
                perform pgqueue_worker_wake(v_woken_queue, v_woken_tasks);
            else
                perform pgqueue_worker_wake_by(v_woken_queue, v_woken_tasks, p_dequeue_at);
            end if;
        end if;
        return next;
    end loop;
end
$$;
