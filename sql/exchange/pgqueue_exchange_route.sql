create or replace function pgqueue_exchange_route(p_exchange text, p_routing_key text)
returns table (p_queue text, p_task text, p_priority integer, p_max_attempts integer, p_patterns text[])
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Returns where a message with this routing key would go: one row for each message that pgqueue_message_publish would
-- enqueue, with the patterns that match.  Several bindings of a queue give one message; several tasks in a queue give
-- one each.  The message has the highest priority of its bindings, and the max_attempts of that binding.
-- Reads the bindings of the exchange once.  "like" decides most of them; PostgreSQL compiles a regular expression only
-- when the key has passed the like.
begin
    return query
    select b.queue, b.task, max(b.priority)::integer,
           (array_agg(b.max_attempts order by b.priority desc, b.max_attempts desc nulls last))[1],
           array_agg(b.pattern order by b.pattern)
    from pgqueue_binding b
    -- A topic is compared with the words between dots: '.order.created.', and '.' where there is no word.
    cross join (select case when p_routing_key = '' then '.' else '.' || p_routing_key || '.' end) as w (words)
    where b.exchange = p_exchange
      and case
              when w.words like b.likeness then
                  b.regex is null or case b.kind when 'topic' then w.words else p_routing_key end ~ b.regex
          end
    group by b.queue, b.task
    order by b.queue, b.task;
end
$$;
