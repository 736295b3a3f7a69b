create or replace function pgqueue_message_lock_keys(p_task text, p_alone boolean default false) returns void
language plpgsql
set search_path from current
as $$
-- Prevents deadlocks between transactions that enqueue many messages of a task with unique keys, until the end of the
-- caller's transaction.  Call it before the first of them:
--   p_alone false   when all messages come in one call of pgqueue_message_create_many, which sorts them by their keys
--                   (and calls this itself): any number of transactions may do so at a time
--   p_alone true    when more calls follow, whose keys come in any order: then no other transaction may
-- A single pgqueue_message_create_unique needs no lock: a transaction that holds no key cannot deadlock.
-- Waits ten seconds at most, or lock_timeout (pgqueue_advisory_lock), and then goes on without: PostgreSQL ends a
-- deadlock by an error in one transaction, and a login without rights to the queue can delay no caller for longer.
declare
    v_wait_ms integer := 10000;
begin
    if current_setting('lock_timeout') <> '0' then
        v_wait_ms := least(v_wait_ms, extract(epoch from current_setting('lock_timeout')::interval) * 1000);
    end if;
    perform pgqueue_advisory_lock('unique keys of ' || coalesce(p_task, ''), not p_alone, v_wait_ms);
end
$$;
