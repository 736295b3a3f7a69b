create or replace function pgqueue_message_suspend(
    p_id bigint,
    p_attempt integer,
    p_worker text default null,
    p_name text default null,
    p_kind text default 'sleep',
    p_until bigint default null,
    p_event text default null,
    p_after_ids bigint[] default null,
    p_permission text default null,
    p_details jsonb default null,
    p_started_at timestamptz default null,
    p_finished_at timestamptz default null
) returns text
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Ends an attempt of a message that the caller holds as suspended: the message waits, and holds no lock.  The attempt
-- uses none of max_attempts up.
--   p_name, p_kind  the step that waits: sleep, event or approval.  Its record keeps p_until for the next attempts; null:
--                   the message waits for others
--   p_until         when it is ready again, whatever happens (epoch ms; null: never)
--   p_event         it is ready as soon as this event has been emitted; without p_name, that is the name of the step, too.
--                   Where they differ, the record of the step keeps the event, so that retention keeps it until it is read.
--                   Not for an approval, whose event is that of the decision
--   p_after_ids     it is ready when these messages have left the queue, as with pgqueue_message_create_after; itself may
--                   not be one of them
--   p_permission, p_details  for an approval: who may decide, and what that person is shown
-- No emit is missed, in whichever order transactions commit: the emitter leaves a row in pgqueue_ended, and so does this
-- function.  Who takes such a row has a snapshot in which its writer has committed.  If that writer has emitted, all that
-- waited by then are seen; if it has begun to wait, an event that is not seen yet is committed later, and leaves a row of
-- its own.
-- A message that was asked to stop is cancelled instead.
-- Returns suspended or cancelled; null: the attempt is not the caller's any more, and nothing happened.
-- Locks one row; writes pgqueue_message, pgqueue_attempt, pgqueue_step, pgqueue_approval and pgqueue_ended.
declare
    v_max constant integer := 100000;
    v_message pgqueue_message;
    v_now bigint := pgqueue_now();
    v_clock timestamptz := pgqueue_clock();
    v_until bigint := coalesce(p_until, 9223372036854775807);
    v_ids bigint[];
    v_decision text;
begin
    if cardinality(p_after_ids) > v_max then
        raise exception 'p_after_ids has % ids', cardinality(p_after_ids)
            using errcode = 'program_limit_exceeded',
                  hint = format('It may have %s: wait for the first of them, and then for the rest.', v_max);
    end if;
    v_ids := array(select distinct a.id from unnest(p_after_ids) as a (id) where a.id is not null order by 1);
    if p_id = any (p_after_ids) then
        raise exception 'message % would wait for itself', p_id
            using errcode = 'invalid_parameter_value', hint = 'Leave its id out of p_after_ids.';
    end if;
    if p_kind is null or p_kind not in ('sleep', 'event', 'approval') then
        raise exception 'p_kind is %', quote_nullable(left(p_kind, 50))
            using errcode = 'invalid_parameter_value', hint = 'It must be sleep, event or approval.';
    end if;
    if p_kind = 'approval' then
        if p_name is null then
            raise exception 'message % would wait for an approval without a name, which nobody can decide', p_id
                using errcode = 'invalid_parameter_value', hint = 'Name it with p_name.';
        end if;
        v_decision := format('pgqueue:approval:%s:%s', p_id, p_name);
        p_event := coalesce(p_event, v_decision);
        if p_event <> v_decision then
            raise exception 'message % would wait for the event %, which no decision of % emits',
                p_id, quote_literal(left(p_event, 50)), quote_literal(left(p_name, 50))
                using errcode = 'invalid_parameter_value', hint = 'Leave p_event out.';
        elsif p_permission is not null then
            perform pgqueue_name_require(p_permission, 'a permission');
        end if;
        if pgqueue_message_is_large(p_details) then
            p_details := pgqueue_message_readable(p_details, 'p_details');
        end if;
    elsif p_event is not null then
        perform pgqueue_name_require(p_event, 'an event');
        if starts_with(p_event, 'pgqueue:') then
            raise exception 'message % would wait for the event %, which nobody can emit', p_id, quote_literal(left(p_event, 50))
                using errcode = 'invalid_parameter_value', hint = 'Names that begin with pgqueue: belong to the queue.';
        end if;
    end if;
    if p_until is null and p_event is null and v_ids = '{}' then
        raise exception 'message % would wait for nothing, and so for ever', p_id
            using errcode = 'invalid_parameter_value',
                  hint = 'Give p_until, p_event or p_after_ids; p_until => pgqueue_now() makes it ready at once.';
    end if;
    p_name := coalesce(p_name, p_event);
    if p_name is not null then
        perform pgqueue_name_require(p_name, 'a step');
    end if;
    select m.* into v_message
    from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    for update;
    if not found then
        return null;
    end if;
    if v_message.cancel_requested_at is not null then
        delete from pgqueue_message m where m.id = p_id;
        perform pgqueue_attempt_append(v_message, 'cancelled', true, null, p_started_at, p_finished_at);
        perform pgqueue_child_cancel(array[p_id]);
        return 'cancelled';
    end if;

    if p_name is not null then
        insert into pgqueue_step (
            message_id, recorded_at, started_at, finished_at, until, attempt, kind, status, name, result)
        select p_id,
               case when v_clock < v_message.created_at
                    then v_message.created_at + (v_clock - date_trunc('day', v_clock)) else v_clock end,
               v_clock, v_clock, p_until, p_attempt, p_kind, 'waiting', p_name,
               case when p_kind <> 'approval' and p_event <> p_name then to_jsonb(p_event) end
        where not exists (
            select from pgqueue_step s
            where s.message_id = p_id and s.recorded_at >= v_message.created_at - interval '1 day'
              and s.name = p_name and s.status = 'waiting' and s.kind = p_kind);
        if p_kind = 'approval' then
            insert into pgqueue_approval (message_id, name, asked_at, permission, details)
            values (p_id, p_name, v_clock, p_permission, p_details)
            on conflict do nothing;
        end if;
    end if;
    update pgqueue_message m
    set unlock_at = null, locked_at = null, worker = null, progress = null,
        dequeue_at = v_until, in_line = v_until <= v_now,
        alone_at = null, lost = 0, unknown_since = null,
        max_attempts = m.max_attempts + case when m.max_attempts < 2000000000 then 1 else 0 end,
        suspended_attempt = m.attempt, awaited_event = p_event,
        after_ids = case when v_ids <> '{}' then v_ids end,
        after_policy = case when v_ids <> '{}' then 'finished' end,
        checks = case when v_ids <> '{}' then 0 end,
        check_at = case when v_ids <> '{}' then v_now end,
        awaited_id = case when v_ids <> '{}' then v_ids[cardinality(v_ids)] end
    where m.id = p_id;
    if v_ids <> '{}' and (select true from pgqueue_message d where d.id = v_ids[cardinality(v_ids)]) is null then
        insert into pgqueue_ended (message_id, look_at) values (v_ids[cardinality(v_ids)], v_now);
    end if;
    if p_event is not null then
        insert into pgqueue_ended (message_id, event, look_at) values (0, p_event, v_now);
    end if;
    perform pgqueue_attempt_append(v_message, 'suspended', false, null, p_started_at, p_finished_at);
    return 'suspended';
end
$$;
