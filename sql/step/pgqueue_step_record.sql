create or replace function pgqueue_step_record(
    p_id bigint,
    p_attempt integer,
    p_name text,
    p_result jsonb default null,
    p_worker text default null,
    p_kind text default 'step',
    p_status text default 'done',
    p_error text default null,
    p_started_at timestamptz default null
) returns boolean
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Records a step of a message that the caller holds.  Returns false when the attempt is not the caller's any more:
    -- then nothing was recorded, and the caller rolls back what the step has done.
    -- The row of the message is locked for key share until the end of the transaction: a heartbeat passes, and whatever
    -- ends the attempt does not.  So a step is recorded by the holder of its message, or not at all.
    -- recorded_at is no earlier than the message was created: who reads the records looks from that day on, and the clock
    -- may have been ahead then.  The time of the day keeps records of one name apart.
    -- Locks one row of pgqueue_message; writes pgqueue_step.
    with held as (
        select m.id, m.created_at from pgqueue_message m
        where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
        for key share
    ),
    recorded as (
        insert into pgqueue_step (
            message_id, recorded_at, started_at, finished_at, attempt, kind, status, name, error, result)
        select h.id,
               case when c.now < h.created_at then h.created_at + (c.now - date_trunc('day', c.now)) else c.now end,
               p_started_at, c.now, p_attempt, p_kind, p_status, p_name, left(p_error, 1000000),
               case when pgqueue_message_is_large(p_result) then pgqueue_message_readable(p_result, 'result') else p_result end
        from held h cross join pgqueue_clock() as c (now)
        returning message_id
    )
    select case
        when p_name <> '' and octet_length(p_name) <= 255 and p_name !~ '[\u0001-\u001f\u007f]'
             and p_kind in ('step', 'atomic', 'enqueue', 'sleep', 'event', 'approval')
             and p_status in ('began', 'failed', 'waiting', 'unasked', 'done')
             and (p_started_at is null or p_started_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
        then exists (select from recorded)
        else pgqueue_step_refuse(p_name, p_kind, p_status, p_started_at)
    end
$$;
