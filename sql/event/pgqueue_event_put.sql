create or replace function pgqueue_event_put(p_name text, p_payload jsonb) returns text
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Emits an event, as pgqueue_event_emit does, under any name.  pgqueue_event_emit and pgqueue_approval_decide call this.
-- It locks no message, so that emitting never waits for a waiter.  It waits for another transaction that emits the same
-- name.  Writes pgqueue_event and pgqueue_ended; wakes a sleeping worker if a message is seen to wait.
declare
    v_same boolean;
    v_queue text;
begin
    perform pgqueue_name_require(p_name, 'an event', 512);
    if p_payload is null then
        raise exception 'the payload of the event % is null', left(p_name, 50)
            using errcode = 'null_value_not_allowed', hint = 'Give a JSON value, such as {}.';
    end if;
    for v_round in 1 .. 1000 loop
        insert into pgqueue_event (name, emitted_at, payload) values (p_name, pgqueue_clock(), p_payload)
        on conflict do nothing;
        exit when found;
        select e.payload = p_payload into v_same from pgqueue_event e where e.name = p_name;
        if found then
            return case when v_same then 'repeated' else 'different' end;
        end if;  -- else retention has deleted it meanwhile
        if v_round = 1000 then
            raise exception 'row-level security hides the event %', quote_literal(left(p_name, 100))
                using errcode = 'insufficient_privilege', hint = 'Let the role bypass row-level security of pgqueue_event.';
        end if;
    end loop;
    insert into pgqueue_ended (message_id, event, look_at) values (0, p_name, pgqueue_now());
    select m.queue into v_queue from pgqueue_message m
    where m.awaited_event = p_name and m.suspended_attempt is not null
    limit 1;
    if found then
        perform pgqueue_worker_wake(v_queue, true);
    end if;
    return 'emitted';
end
$$;
