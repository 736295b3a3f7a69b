create or replace function pgqueue_exchange_delete(p_name text) returns boolean
language plpgsql
set search_path from current
as $$
-- Deletes an exchange and its bindings, and returns whether there was one.  Messages that it has put into queues stay.
-- Locks a row of pgqueue_exchange and its rows of pgqueue_binding; publishers do not wait.
begin
    delete from pgqueue_exchange e where e.name = p_name;
    return found;
end
$$;
