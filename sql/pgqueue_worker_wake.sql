create or replace function pgqueue_worker_wake(p_queue text) returns void
language plpgsql
set search_path from current
as $$
-- Wakes one sleeping worker that serves p_queue, if there is one: the notification is delivered when the caller's
-- transaction commits.  Reads pgqueue_worker without a row lock and writes nothing, so enqueues never wait for each
-- other here.  While the workers are busy nobody sleeps and nobody is notified: a notification costs every commit of
-- the whole database cluster a place in one line.
declare
    v_worker text;
begin
    select w.id into v_worker
    from pgqueue_worker w
    where w.asleep_until > pgqueue_now()
      and (w.queues is null or p_queue = any (w.queues))
      and p_queue <> all (w.exclude_queues)
    limit 1;
    if found then
        perform pg_notify('pgqueue_' || v_worker, p_queue);
    end if;
end
$$;
