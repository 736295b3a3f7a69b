create or replace function pgqueue_message_lock_keys(p_task text, p_alone boolean default false) returns void
language plpgsql
as $$
-- Keeps transactions that enqueue many messages of a task with unique keys from waiting for each other in a circle, until
-- the end of the caller's transaction.  Before the first of them, say
--   p_alone false   when all come in one call of pgqueue_message_create_many, which puts them in the order of their keys
--                   (and says this itself): any number of transactions may
--   p_alone true    when more calls follow, whose keys come in any order: then nobody else may
-- A single pgqueue_message_create_unique needs none: who waits for a key and holds none can not be part of a circle.
-- Takes an advisory lock, whose number is made of the task.
declare
    v_number bigint := hashtextextended('unique keys of ' || coalesce(p_task, ''), 0);
begin
    if p_alone then
        perform pg_advisory_xact_lock(v_number);
    else
        perform pg_advisory_xact_lock_shared(v_number);
    end if;
end
$$;
