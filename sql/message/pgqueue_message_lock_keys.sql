create or replace function pgqueue_message_lock_keys(p_task text, p_alone boolean default false) returns void
language plpgsql
set search_path from current
as $$
-- Keeps transactions that enqueue many messages of a task with unique keys from waiting for each other in a circle, until
-- the end of the caller's transaction.  Before the first of them, say
--   p_alone false   when all come in one call of pgqueue_message_create_many, which puts them in the order of their keys
--                   (and says this itself): any number of transactions may
--   p_alone true    when more calls follow, whose keys come in any order: then nobody else may
-- A single pgqueue_message_create_unique needs none: who waits for a key and holds none cannot be part of a circle.
-- Waits ten seconds at most, or lock_timeout (pgqueue_advisory_lock), and then goes on without: PostgreSQL breaks a circle by an error in
-- one of its transactions, and whoever has no rights to the queue can hold up nobody for longer than that.
declare
    v_wait_ms integer := 10000;
begin
    if current_setting('lock_timeout') <> '0' then
        v_wait_ms := least(v_wait_ms, extract(epoch from current_setting('lock_timeout')::interval) * 1000);
    end if;
    perform pgqueue_advisory_lock('unique keys of ' || coalesce(p_task, ''), not p_alone, v_wait_ms);
end
$$;
