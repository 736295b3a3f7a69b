create or replace function pgqueue_message_ended() returns trigger
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Records in pgqueue_ended the messages that a statement has deleted and that others wait for.  It is a trigger, so
-- that it covers every way to end messages, a delete by hand included.  Where no message waits for one in the range of
-- these ids, it costs one index probe, however many they are.
-- The queries of this function see what was committed before they begin, and they begin after the rows were deleted.
-- pgqueue_message_settle relies on that order: see there.  In a transaction whose snapshot is older (repeatable read) they
-- do not, so there the function records every id.
-- Writes pgqueue_ended; wakes a sleeping worker for each queue with waiting messages.
declare
    v_waiting record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        insert into pgqueue_ended (message_id, look_at) select g.id, pgqueue_now() from gone g;
        return null;
    end if;
    if not exists (
        select from (select min(g.id) as first, max(g.id) as last from gone g) as r
        cross join lateral (
            select from pgqueue_message m where m.awaited_id between r.first and r.last limit 1
        ) as w
    ) then
        return null;
    end if;
    for v_waiting in
        with told as (
            insert into pgqueue_ended (message_id, look_at)
            select g.id, pgqueue_now() from gone g
            where (select true from pgqueue_message m where m.awaited_id = g.id limit 1)
            order by g.id
            returning message_id
        )
        select distinct w.queue, w.raw
        from told t
        cross join lateral (
            select m.queue, m.task is null as raw from pgqueue_message m where m.awaited_id = t.message_id limit 1
        ) as w
    loop
        perform pgqueue_worker_wake(v_waiting.queue, not v_waiting.raw);
    end loop;
    return null;
end
$$;

create or replace trigger pgqueue_message_ended after delete on pgqueue_message
referencing old table as gone
for each statement
execute function pgqueue_message_ended();
