create or replace function pgqueue_message_lane() returns trigger
language plpgsql
set search_path from current
set enable_seqscan = off
as $$
-- Records in pgqueue_arrival the events of lanes: a message that waits from some time on, or an attempt that ended.
-- It is a trigger, so that it covers every change of messages, deletes and updates by hand included, in the same
-- transaction: running cannot drift.  pgqueue_message_dequeue itself counts the messages that it locks.
-- When a dump is restored (two settings of pg_dump identify that), the restored pgqueue_channel already has the counts.
-- Then this records waiting messages only, with ids that no row of the dump has.
-- Writes one row of its own and locks none; an end that a halted lane waits for wakes a sleeping worker.
declare
    v_moved boolean := false;
    v_left boolean := false;
    v_waits boolean := false;
    v_runs boolean := false;
begin
    if tg_op = 'UPDATE' then
        v_moved := (old.channel, old.queue, old.task is null) is distinct from (new.channel, new.queue, new.task is null);
    end if;
    if tg_op <> 'INSERT' then
        v_left := old.channel is not null and old.unlock_at is not null
            and (tg_op = 'DELETE' or v_moved or new.unlock_at is null);
    end if;
    if tg_op <> 'DELETE' and new.channel is not null then
        v_runs := new.unlock_at is not null and (tg_op = 'INSERT' or v_moved);
        v_waits := new.unlock_at is null and new.dequeue_at < 9223372036854775806
            and (tg_op = 'INSERT' or v_moved or old.unlock_at is not null or old.dequeue_at <> new.dequeue_at);
    end if;

    if tg_op = 'INSERT' and current_setting('row_security') = 'off' and current_setting('check_function_bodies') = 'off' then
        if v_waits then
            insert into pgqueue_arrival (id, channel, queue, raw, dequeue_at)
            values (-new.id, new.channel, new.queue, new.task is null, new.dequeue_at)
            on conflict do nothing;
        end if;
        return null;
    end if;
    if v_left then
        insert into pgqueue_arrival (channel, queue, raw, ended, dequeue_at)
        values (old.channel, old.queue, old.task is null, 1, case when v_waits and not v_moved then new.dequeue_at end);
        if exists (select from pgqueue_worker w where w.asleep_until is not null) and exists (
            select from pgqueue_lane l
            where l.channel = old.channel and l.queue = old.queue and l.raw = (old.task is null) and l.parked
        ) then
            perform pgqueue_worker_wake(old.queue, old.task is not null);
        end if;
    end if;
    if tg_op = 'DELETE' and old.unlock_at is null and exists (
        select from pgqueue_channel c where c.name = old.channel and c.released_at is not null
    ) then  -- it may have been the last message of the channel
        insert into pgqueue_arrival (channel, queue, raw, dequeue_at)
        values (old.channel, old.queue, old.task is null, pgqueue_now());
    end if;
    if v_runs or v_waits and not (v_left and not v_moved) then
        insert into pgqueue_arrival (channel, queue, raw, ended, dequeue_at)
        values (new.channel, new.queue, new.task is null, case when v_runs then -1 else 0 end,
                case when v_waits then new.dequeue_at end);
    end if;
    return null;
end
$$;

create or replace trigger pgqueue_message_lane_insert after insert on pgqueue_message
for each row when (new.channel is not null)
execute function pgqueue_message_lane();

create or replace trigger pgqueue_message_lane_update after update on pgqueue_message
for each row when (
    (old.channel is not null or new.channel is not null)
    and (new.unlock_at is null or old.channel is distinct from new.channel or old.queue <> new.queue))
execute function pgqueue_message_lane();

create or replace trigger pgqueue_message_lane_delete after delete on pgqueue_message
for each row when (old.channel is not null)
execute function pgqueue_message_lane();
