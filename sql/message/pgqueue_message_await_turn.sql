create or replace function pgqueue_message_await_turn(p_queues text[] default null, p_wait_ms integer default 1000)
returns integer
language plpgsql
set search_path from current
as $$
-- Lets claims of the same queues take turns.  A consumer that dequeues many messages in a transaction of its own calls
-- this first, in the same transaction, with p_queues as given to pgqueue_message_dequeue: its turn lasts until the
-- transaction ends.  Without turns, simultaneous claims step over the rows that others are taking, lock some that were
-- taken meanwhile, and make the ends of those wait: a fifth of the server's work, with sixteen sessions on two cores.
-- Returns how many milliseconds it waited; null: its turn did not come within p_wait_ms (or half of statement_timeout, if
-- that is less).  Claim all the same: a turn saves work, and nothing depends on it.
-- Do not call it in a transaction that goes on after its claim: the others would wait for that.
-- Takes an advisory lock (pgqueue_advisory_lock).
declare
    v_begun timestamptz := clock_timestamp();
    v_what text := 'turn ' || coalesce(p_queues::text, '');
begin
    if pgqueue_advisory_lock(v_what) then
        return 0;
    elsif pgqueue_advisory_lock(v_what, p_wait_ms => p_wait_ms) then
        return ceil(extract(epoch from clock_timestamp() - v_begun) * 1000);
    end if;
    return null;
end
$$;
