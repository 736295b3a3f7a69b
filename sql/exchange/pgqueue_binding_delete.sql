create or replace function pgqueue_binding_delete(
    p_exchange text,
    p_pattern text,
    p_queue text,
    p_task text default null,
    p_kind text default 'topic'
) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Removes a binding and returns whether it was there.  Messages that it has put into the queue stay.
-- Locks a row of pgqueue_binding; publishers do not wait.
begin
    delete from pgqueue_binding b
    where b.exchange = p_exchange and b.kind = p_kind and b.pattern = p_pattern and b.queue = p_queue
      and b.task is not distinct from p_task;
    return found;
end
$$;
