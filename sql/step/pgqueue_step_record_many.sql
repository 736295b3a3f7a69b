create or replace function pgqueue_step_record_many(
    p_ids bigint[],
    p_attempts integer[],
    p_workers text[],
    p_names text[],
    p_results jsonb[],
    p_kinds text[],
    p_statuses text[],
    p_started_at timestamptz[]
) returns setof integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Records steps of several messages in one transaction, as pgqueue_step_record records one.  Returns the places
-- (from 1) of those that were recorded.  The others may have lost their attempt, or somebody else has locked their
-- message: pgqueue_step_record says which, and waits.  This function waits for nobody, so that one message does not
-- hold up the others.  One that cannot be recorded at all is an error, and none is recorded.
-- Locks rows of pgqueue_message for key share; writes pgqueue_step.
declare
    v_timeout text := current_setting('lock_timeout');
    v_ids bigint[];
    v_attempts integer[];
    v_workers text[];
    v_created timestamptz[];
begin
    begin
        -- Though it skips what is locked, it waits for a transaction that goes on after it has prolonged and then ended one
        -- of the messages (pgqueue_message_look).  Then none is recorded.
        perform set_config('lock_timeout', '10ms', true);
        select array_agg(h.id), array_agg(h.attempt), array_agg(h.worker), array_agg(h.created_at)
        into v_ids, v_attempts, v_workers, v_created
        from (
            select m.id, m.attempt, m.worker, m.created_at from pgqueue_message m
            where m.id = any (p_ids)
            for key share skip locked
        ) h;
        perform set_config('lock_timeout', v_timeout, true);
    exception
        when lock_not_available then
            return;
    end;
    return query
    with asked as materialized (
        select a.*
        from unnest(p_ids, p_attempts, p_workers, p_names, p_results, p_kinds, p_statuses, p_started_at)
             with ordinality as a (id, attempt, worker, name, result, kind, status, started_at, place)
        where case
            when a.name <> '' and octet_length(a.name) <= 255 and a.name !~ '[\u0001-\u001f\u007f]'
                 and a.kind in ('step', 'atomic', 'enqueue', 'sleep', 'event', 'approval')
                 and a.status in ('began', 'failed', 'waiting', 'unasked', 'done')
                 and (a.started_at is null or a.started_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
            then true
            else pgqueue_step_refuse(a.name, a.kind, a.status, a.started_at)
        end
    ),
    recorded as (
        insert into pgqueue_step (
            message_id, recorded_at, started_at, finished_at, attempt, kind, status, name, result)
        select a.id,
               case when c.now < h.created_at then h.created_at + (c.now - date_trunc('day', c.now)) else c.now end,
               a.started_at, c.now, a.attempt, a.kind, a.status, a.name,
               case when pgqueue_message_is_large(a.result) then pgqueue_message_readable(a.result, 'result') else a.result end
        from asked a join unnest(v_ids, v_attempts, v_workers, v_created) as h (id, attempt, worker, created_at)
                 on h.id = a.id and h.attempt = a.attempt and h.worker = a.worker
             cross join pgqueue_clock() as c (now)
        returning message_id, name, status
    )
    select a.place::integer from asked a join recorded r on r.message_id = a.id and r.name = a.name and r.status = a.status;
end
$$;
