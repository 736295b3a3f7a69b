create or replace function pgqueue_schedule_fire(
    p_name text,
    p_slots bigint[],
    p_expected_at bigint,
    p_next_at bigint,
    p_unique_key text default null,
    p_on_conflict text default 'keep',
    p_until_started boolean default false,
    p_channel text default null,
    p_max_lost integer default null,
    p_version text default null,
    p_headers jsonb default null
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set lock_timeout = '50ms'
as $$
-- Enqueues a message for each unused slot (epoch ms) of a schedule, and returns the ids of the new messages.  next_at
-- moves from p_expected_at to p_next_at; when it is not p_expected_at any more, another worker was faster and nothing
-- happens.  With p_unique_key the messages go through pgqueue_message_create_unique: a slot whose message meets one
-- that holds the key is used, and counts for that one.  A slot whose message p_channel refuses is used as well.
-- p_max_lost, p_version: as in pgqueue_message_create.  p_headers: more headers of each message.
-- A past slot is enqueued with the present time as dequeue_at: its own time would put it ahead of all that was enqueued
-- since.  The headers contain the slot.
-- Any number of workers may call this at the same time: each (name, slot) is enqueued at most once, by the primary key
-- of pgqueue_schedule_slot, even if next_at is put back by hand.  Slots are remembered for 90 days, and of an interval
-- the last 10,000 at most: do not put next_at further back.
-- Locks one row of pgqueue_schedule, without waiting for it; writes pgqueue_schedule_slot and pgqueue_message.  Waits
-- at most lock_timeout for a key that another transaction is about to take; then nothing happens, and the next call
-- fires the slots.
declare
    v_schedule pgqueue_schedule;
    v_slot bigint;
    v_at bigint;
    v_message_id bigint;
    v_created boolean;
    v_ids bigint[] := '{}';
    v_kept_ms bigint;
begin
    select s.* into v_schedule
    from pgqueue_schedule s
    where s.name = p_name and s.next_at = p_expected_at and s.paused_at is null
    for update skip locked;
    if not found then
        return;
    end if;

    begin
        foreach v_slot in array p_slots loop
            insert into pgqueue_schedule_slot (name, slot_at) values (p_name, v_slot) on conflict do nothing;
            continue when not found;
            v_at := greatest(v_slot, pgqueue_now(now()));
            if p_unique_key is null then
                v_created := true;
                v_message_id := pgqueue_message_create(
                    v_schedule.content, v_schedule.queue, v_schedule.task, v_schedule.priority, v_at,
                    p_channel => p_channel, p_headers => coalesce(p_headers, '{}') || jsonb_build_object('schedule', p_name, 'slot', v_slot),
                    p_max_attempts => v_schedule.max_attempts, p_max_lost => p_max_lost, p_version => p_version);
            else
                select u.p_id, u.p_created into v_message_id, v_created
                from pgqueue_message_create_unique(
                    p_unique_key, v_schedule.content, v_schedule.queue, v_schedule.task, v_schedule.priority, v_at,
                    p_channel => p_channel, p_headers => coalesce(p_headers, '{}') || jsonb_build_object('schedule', p_name, 'slot', v_slot),
                    p_max_attempts => v_schedule.max_attempts, p_on_conflict => p_on_conflict,
                    p_until_started => p_until_started, p_max_lost => p_max_lost, p_version => p_version) as u;
            end if;
            update pgqueue_schedule_slot l set message_id = v_message_id where l.name = p_name and l.slot_at = v_slot;
            if v_created and v_message_id is not null then
                v_ids := v_ids || v_message_id;
            end if;
        end loop;
    exception
        when lock_not_available then
            return;
    end;

    update pgqueue_schedule s set next_at = p_next_at where s.name = p_name;
    -- Relative to p_expected_at and not to the clock, because catching up may be about old slots.
    v_kept_ms := 10000 * least(coalesce(v_schedule.interval_ms, 777600), 777600);
    delete from pgqueue_schedule_slot l
    where l.name = p_name and l.slot_at < greatest(p_expected_at, v_kept_ms - 1 - 9223372036854775807) - v_kept_ms;
    return query select unnest(v_ids);
end
$$;
