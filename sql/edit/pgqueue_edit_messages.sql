create or replace function pgqueue_edit_messages(
    p_filter jsonb,
    p_after bigint,
    p_until bigint,
    p_limit integer default 1000,
    out p_ids bigint[],
    out p_last bigint
)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Looks at the first p_limit messages with ids after p_after and up to p_until.  Returns the ids of those that match
    -- p_filter (pgqueue_edit_check), and the last id that it looked at: p_until when there are no more.
    -- argument is a value anywhere in the content; a number also matches a text of it.  Locks nothing.
    select coalesce(array_agg(w.id order by w.id) filter (where w.fits), '{}'),
           case when count(*) < p_limit then p_until else max(w.id) end
    from (
        select m.id,
               (f.queue is null or m.queue = f.queue)
               and (f.task is null or m.task = f.task)
               and (f.raw is null or (m.task is null) = f.raw)
               and (f.task_contains is null or strpos(lower(m.task), lower(f.task_contains)) > 0)
               and (f.channel is null or m.channel = f.channel)
               and (f.status is null or f.status = case
                    when m.unlock_at > pgqueue_now() then 'running'
                    when m.unlock_at is not null then 'expired'
                    when m.dequeue_at > pgqueue_now() then 'scheduled'
                    else 'ready' end)
               and (f.priority_from is null or m.priority >= f.priority_from)
               and (f.priority_until is null or m.priority <= f.priority_until)
               and (f.created_from is null or m.created_at >= pgqueue_from_epoch(f.created_from))
               and (f.created_until is null or m.created_at <= pgqueue_from_epoch(f.created_until))
               and (f.run_at_from is null or m.dequeue_at >= f.run_at_from)
               and (f.run_at_until is null or m.dequeue_at <= f.run_at_until)
               and (f.error_contains is null or strpos(lower(left(m.last_error, 1000)), lower(f.error_contains)) > 0)
               and (f.error_group is null or m.last_error is not null and exists (
                    select from pgqueue_attempt a
                    where a.message_id = m.id and a.status in ('failed', 'retried', 'lost')
                      and pgqueue_attempt_error_group(a.error_class, a.error_message, a.traceback) = f.error_group))
               and (f.argument is null or jsonb_path_exists(
                    m.content, '$.** ? (@ == $value || @ == $text)',
                    jsonb_build_object('value', f.argument, 'text', f.argument #>> '{}'))) as fits
        from jsonb_to_record(p_filter) as f (
            queue text, task text, raw boolean, task_contains text, channel text, status text, priority_from bigint,
            priority_until bigint, created_from bigint, created_until bigint, run_at_from bigint, run_at_until bigint,
            error_contains text, error_group text, argument jsonb)
        cross join lateral (
            select m.* from pgqueue_message m
            where m.id > p_after and m.id <= p_until
            order by m.id limit p_limit
        ) as m
    ) as w
$$;
