create or replace function pgqueue_edit_change(
    p_action text,
    p_parameters jsonb,
    p_ids bigint[],
    p_filter jsonb default null,
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
-- the moment are left alone and returned as p_locked.  p_filter: those that do not match it any more are left alone,
-- too, and not counted.  pgqueue_edit_step calls this.
-- Locks rows of pgqueue_message in the order of ids, without waiting for any.
declare
    v_now bigint := pgqueue_now();
    v_held bigint[];
    v_first bigint;
    v_last bigint;
    v_found bigint[];
    v_wanted bigint[];
    v_free bigint[];
    v_running bigint[];
    v_run_at bigint := (p_parameters ->> 'run_at')::bigint;
    v_priority integer := (p_parameters ->> 'priority')::integer;
    v_queue text := p_parameters ->> 'queue';
    v_due_at bigint;
begin
    v_held := array(select m.id from pgqueue_message m where m.id = any (p_ids) order by m.id for no key update skip locked);
    v_found := v_held;
    if p_filter is not null then
        -- A message may have begun, or come to another queue, since it was found.  Where most ids of the range are these,
        -- one look at the range is cheaper than one at each; but nobody reads the contents of others meanwhile.
        v_first := v_held[1];
        v_last := v_held[cardinality(v_held)];
        if v_last - v_first < 10 * cardinality(v_held) and not p_filter ?| array['argument', 'error_group'] then
            v_found := array(
                select h.id from unnest(v_held) as h (id)
                intersect
                select f.id from pgqueue_edit_messages(p_filter, v_first - 1, v_last, 2147483647) as s, unnest(s.p_ids) as f (id));
        else
            v_found := array(
                select h.id from unnest(v_held) as h (id)
                cross join lateral pgqueue_edit_messages(p_filter, h.id - 1, h.id, 1) as s
                where s.p_ids <> '{}');
        end if;
    end if;
    select coalesce(array_agg(m.id) filter (where case p_action
               when 'run_now' then m.worker is null and m.after_ids is null
                    and (m.parked_at is not null or coalesce(m.alone_at, m.dequeue_at) > v_now)
               when 'postpone' then m.worker is null and m.after_ids is null and m.parked_at is null
                    and coalesce(m.alone_at, m.dequeue_at) < v_run_at
               when 'cancel' then coalesce(m.unlock_at, v_now) <= v_now
               when 'delete' then m.worker is null
               when 'move' then m.worker is null and m.queue <> v_queue
               when 'prioritise' then m.worker is null and m.priority <> v_priority
               end), '{}'),
           coalesce(array_agg(m.id) filter (where p_action = 'cancel' and m.unlock_at > v_now), '{}'),
           count(*) filter (where p_action in ('run_now', 'postpone') and m.worker is null and m.after_ids is not null)
    into v_wanted, v_running, p_awaiting
    from pgqueue_message m
    where m.id = any (v_found);
    if p_action in ('cancel', 'delete') then
        -- Who decides an approval, or records a step, lets changes pass, but no end.
        v_free := array(select m.id from pgqueue_message m where m.id = any (v_wanted) order by m.id for update skip locked);
        p_locked := array(select w from unnest(v_wanted) as w where w <> all (v_free));
        v_wanted := v_free;
    end if;

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

    p_skipped := cardinality(v_found) - coalesce(cardinality(p_locked), 0) - p_done - p_asked - p_awaiting;
    p_locked := coalesce(p_locked, '{}') || case when cardinality(v_held) < cardinality(p_ids) then array(
        select m.id from pgqueue_message m where m.id = any (p_ids) and m.id <> all (v_held) order by m.id) else '{}' end;
end
$$;
