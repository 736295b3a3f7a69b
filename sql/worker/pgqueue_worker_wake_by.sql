create or replace function pgqueue_worker_wake_by(p_queue text, p_tasks boolean, p_at bigint) returns void
language plpgsql
set search_path from current
as $$
-- Wakes the workers that serve p_queue and would otherwise rest past p_at (epoch ms), when something in it becomes due:
-- they learn the time and rest until then.  Workers that do not rest (pgqueue_worker.silent_until) poll every second,
-- and learn it then: one of them is notified only if p_at may be before its next poll.  p_at of the transaction's time,
-- or before, is no time to come: somebody else tells them.
-- p_tasks: as in pgqueue_worker_wake.  The notifications are delivered at the caller's commit.
-- Reads pgqueue_worker without a row lock and writes nothing.  Nobody rests for more than an hour, so a message that is
-- due later does not even read it.
begin
    if p_at > pgqueue_now() + 3700000 then
        return;
    end if;
    if p_at > pgqueue_now(now()) and p_at < pgqueue_now() + 1200 then
        perform pgqueue_worker_wake(p_queue, p_tasks, true);
    end if;
    perform pg_notify('pgqueue_' || r.id, left(p_queue, 255))
    from (
        select w.id from pgqueue_worker w
        where w.silent_until is not null and w.asleep_until > greatest(p_at, pgqueue_now()) and octet_length(w.id) < 56
          and (p_tasks is null or w.tasks = p_tasks)
          and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
        limit 100
    ) as r;
end
$$;
