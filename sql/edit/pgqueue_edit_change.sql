create or replace function pgqueue_edit_change(
    p_action text,
    p_parameters jsonb,
    p_ids bigint[],
    out p_done bigint,
    out p_asked bigint,
    out p_awaiting bigint,
    out p_skipped bigint,
    out p_locked bigint[]
)
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Does the action to the messages with these ids that allow it, and counts them.  Messages that other sessions hold at
-- the moment are left alone and returned as p_locked.  pgqueue_edit_step calls this.
-- Locks rows of pgqueue_message in the order of ids, without waiting for any.
declare
    v_now bigint := pgqueue_now();
    v_found bigint[];
    v_wanted bigint[];
    v_running bigint[];
    v_run_at bigint := (p_parameters ->> 'run_at')::bigint;
    v_priority integer := (p_parameters ->> 'priority')::integer;
    v_queue text := p_parameters ->> 'queue';
    v_due_at bigint;
begin
    select coalesce(array_agg(l.id), '{}'),
           coalesce(array_agg(l.id) filter (where case p_action
               when 'run_now' then l.worker is null and l.after_ids is null
                    and (l.parked_at is not null or coalesce(l.alone_at, l.dequeue_at) > v_now)
               when 'postpone' then l.worker is null and l.after_ids is null and l.parked_at is null
                    and coalesce(l.alone_at, l.dequeue_at) < v_run_at
               when 'cancel' then coalesce(l.unlock_at, v_now) <= v_now
               when 'delete' then l.worker is null
               when 'move' then l.worker is null and l.queue <> v_queue
               when 'prioritise' then l.worker is null and l.priority <> v_priority
               end), '{}'),
           coalesce(array_agg(l.id) filter (where p_action = 'cancel' and l.unlock_at > v_now), '{}'),
           count(*) filter (where p_action in ('run_now', 'postpone') and l.worker is null and l.after_ids is not null)
    into v_found, v_wanted, v_running, p_awaiting
    from (
        select m.id, m.worker, m.unlock_at, m.dequeue_at, m.alone_at, m.parked_at, m.after_ids, m.queue, m.priority
        from pgqueue_message m
        where m.id = any (p_ids)
        order by m.id
        for no key update skip locked
    ) as l;

    if p_action = 'run_now' then
        select count(*) into p_done from pgqueue_message_reschedule(v_wanted);
    elsif p_action = 'postpone' then
        select count(*) into p_done from pgqueue_message_reschedule(v_wanted, v_run_at);
    elsif p_action = 'cancel' then
        select count(*) into p_done from pgqueue_message_cancel(v_wanted);
    elsif p_action = 'delete' then
        delete from pgqueue_message m where m.id = any (v_wanted);
        get diagnostics p_done = row_count;
    elsif p_action = 'move' then
        with moved as (
            update pgqueue_message m set queue = v_queue where m.id = any (v_wanted) returning m.dequeue_at
        )
        select count(*), min(w.dequeue_at) into p_done, v_due_at from moved w;
        if v_due_at <= v_now then
            perform pgqueue_worker_wake(v_queue);
        elsif v_due_at is not null then
            perform pgqueue_worker_wake_by(v_queue, null, v_due_at);
        end if;
    else
        update pgqueue_message m set priority = v_priority where m.id = any (v_wanted);
        get diagnostics p_done = row_count;
    end if;
    select count(*) into p_asked from pgqueue_message_request_cancel(v_running);

    p_locked := case when cardinality(v_found) < cardinality(p_ids) then array(
        select m.id from pgqueue_message m where m.id = any (p_ids) and m.id <> all (v_found) order by m.id) else '{}' end;
    p_skipped := cardinality(v_found) - p_done - p_asked - p_awaiting;
end
$$;
