create or replace function pgqueue_binding_declare(
    p_exchange text,
    p_pattern text,
    p_queue text,
    p_task text default null,
    p_kind text default 'topic',
    p_priority integer default 0,
    p_max_attempts integer default 5,
    p_declared boolean default false,
    out p_id bigint,
    out p_changed boolean
)
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Binds a queue, or with p_task a task in it, to an exchange: messages whose routing key matches p_pattern (see
-- pgqueue_binding_compile) go there, with this priority and max_attempts.  An existing binding of the same pattern is
-- updated; a task that is bound to another queue moves.  Returns the id of the binding and whether anything changed.
-- Writes pgqueue_binding; publishers do not wait.
declare
    v_likeness text;
    v_regex text;
begin
    select c.p_likeness, c.p_regex into v_likeness, v_regex from pgqueue_binding_compile(p_kind, p_pattern) as c;
    if not exists (select from pgqueue_exchange e where e.name = p_exchange) then
        raise exception 'there is no exchange "%"', p_exchange
            using errcode = 'undefined_object',
                  hint = format('Create it first: select pgqueue_exchange_declare(%L).', p_exchange);
    end if;

    insert into pgqueue_binding as b (
        exchange, kind, pattern, queue, task, priority, max_attempts, declared, likeness, regex)
    values (p_exchange, p_kind, p_pattern, p_queue, p_task, p_priority, p_max_attempts, p_declared, v_likeness, v_regex)
    on conflict (exchange, kind, pattern, coalesce(task, ''), (case when task is null then queue else '' end)) do update
    set queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
        declared = b.declared or excluded.declared, likeness = excluded.likeness, regex = excluded.regex
    where (b.queue, b.priority, b.max_attempts, b.declared, b.likeness, b.regex)
        is distinct from (excluded.queue, excluded.priority, excluded.max_attempts, b.declared or excluded.declared,
                          excluded.likeness, excluded.regex)
    returning b.id into p_id;
    p_changed := found;
    if not p_changed then
        select b.id into p_id from pgqueue_binding b
        where b.exchange = p_exchange and b.kind = p_kind and b.pattern = p_pattern
          and coalesce(b.task, '') = coalesce(p_task, '') and (b.task is not null or b.queue = p_queue);
    end if;
end
$$;
