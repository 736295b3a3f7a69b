create or replace function pgqueue_worker_wake(p_queue text, p_tasks boolean default null) returns void
language plpgsql
set search_path from current
as $$
-- Wakes one sleeping consumer that serves p_queue, if there is one: with p_tasks a worker, without a consumer of raw
-- messages, and where p_tasks is null one of each.  The notification is delivered when the caller's transaction commits.
-- Reads pgqueue_worker without a row lock and writes nothing, so enqueues never wait for each other here.  While the
-- workers are busy nobody sleeps and nobody is notified: a notification costs every commit of the whole database cluster
-- a place in one line.
declare
    v_worker text;
    v_tasks boolean;
begin
    select w.id, w.tasks into v_worker, v_tasks
    from pgqueue_worker w
    where w.asleep_until > pgqueue_now()
      and (p_tasks is null or w.tasks = p_tasks)
      and (w.queues is null or p_queue = any (w.queues))
      and p_queue <> all (w.exclude_queues)
    limit 1;
    if not found then
        return;
    end if;
    perform pg_notify('pgqueue_' || v_worker, p_queue);
    if p_tasks is null then
        perform pgqueue_worker_wake(p_queue, not v_tasks);
    end if;
end
$$;
