create or replace function pgqueue_edit_attempts(
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
    -- Looks at the first p_limit attempts with ids after p_after and up to p_until.  Returns the ids of those that were
    -- the last of their message, have its content, and match p_filter (pgqueue_edit_check), and the last id that it
    -- looked at: p_until when there are no more.  error is a part of the class or of the message.  Locks nothing.
    select coalesce(array_agg(w.id order by w.id) filter (where w.fits), '{}'),
           case when count(*) < p_limit then p_until else max(w.id) end
    from (
        select a.id,
               a.final and a.content is not null
               and (f.queue is null or a.queue = f.queue)
               and (f.task is null or a.task = f.task)
               and (f.raw is null or (a.task is null) = f.raw)
               and (f.task_contains is null or strpos(lower(a.task), lower(f.task_contains)) > 0)
               and (f.channel is null or a.channel = f.channel)
               and (f.status is null or a.status = f.status)
               and (f.priority_from is null or a.priority >= f.priority_from)
               and (f.priority_until is null or a.priority <= f.priority_until)
               and (f.created_from is null or a.created_at >= pgqueue_from_epoch(f.created_from))
               and (f.created_until is null or a.created_at <= pgqueue_from_epoch(f.created_until))
               and (f.finished_from is null or a.finished_at >= pgqueue_from_epoch(f.finished_from))
               and (f.finished_until is null or a.finished_at <= pgqueue_from_epoch(f.finished_until))
               and (f.error is null or strpos(lower(a.error_class), lower(f.error)) > 0
                    or strpos(lower(a.error_message), lower(f.error)) > 0)
               and (f.error_class is null or strpos(lower(a.error_class), lower(f.error_class)) > 0)
               and (f.error_contains is null
                    or strpos(lower(left(a.error_message, 1000)), lower(f.error_contains)) > 0)
               and (f.error_group is null or a.status in ('failed', 'lost')
                    and pgqueue_attempt_error_group(a.error_class, a.error_message, a.traceback) = f.error_group)
               and (f.argument is null or jsonb_path_exists(
                    a.content, '$.** ? (@ == $value || @ == $text)',
                    jsonb_build_object('value', f.argument, 'text', f.argument #>> '{}'))) as fits
        from jsonb_to_record(p_filter) as f (
            queue text, task text, raw boolean, task_contains text, channel text, status text, priority_from bigint,
            priority_until bigint, created_from bigint, created_until bigint, finished_from bigint,
            finished_until bigint, error text, error_class text, error_contains text, error_group text, argument jsonb)
        cross join lateral (
            select a.* from pgqueue_attempt a
            where a.id > p_after and a.id <= p_until
            order by a.id limit p_limit
        ) as a
    ) as w
$$;
