create or replace function pgqueue_schedule_fire(
    p_name text,
    p_slots bigint[],
    p_expected_at bigint,
    p_next_at bigint
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Enqueues a message for each slot (epoch ms) of a schedule that has not been used, and answers their ids.  next_at goes
-- on from p_expected_at to p_next_at; where it is not there any more somebody else was faster and nothing happens.
-- Everybody may call this at the same time: each (name, slot) is enqueued at most once, by the primary key of
-- pgqueue_schedule_slot, even if next_at is put back by hand (by no more than 90 days: older slots are forgotten).
-- Locks one row of pgqueue_schedule, without waiting for it; writes pgqueue_schedule_slot and pgqueue_message.
declare
    v_schedule pgqueue_schedule;
    v_slot bigint;
    v_message_id bigint;
begin
    select s.* into v_schedule
    from pgqueue_schedule s
    where s.name = p_name and s.next_at = p_expected_at and s.paused_at is null
    for update skip locked;
    if not found then
        return;
    end if;

    foreach v_slot in array p_slots loop
        insert into pgqueue_schedule_slot (name, slot_at) values (p_name, v_slot) on conflict do nothing;
        continue when not found;
        v_message_id := pgqueue_message_create(
            v_schedule.content, v_schedule.queue, v_schedule.task, v_schedule.priority, v_slot,
            p_headers => jsonb_build_object('schedule', p_name, 'slot', v_slot),
            p_max_attempts => v_schedule.max_attempts);
        update pgqueue_schedule_slot l set message_id = v_message_id where l.name = p_name and l.slot_at = v_slot;
        return next v_message_id;
    end loop;

    update pgqueue_schedule s set next_at = p_next_at where s.name = p_name;
    -- Slots that long before are not asked for again.  Not by the clock: catching up may itself be about old slots.
    delete from pgqueue_schedule_slot l
    where l.name = p_name and l.slot_at < greatest(p_expected_at, -9223372029078775808) - 90 * 86400000::bigint;
end
$$;
