create or replace function pgqueue_worker_died(
    p_worker text,
    p_ids bigint[],
    p_attempts integer[],
    p_running boolean[]
) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Ends the attempts of a worker that is known to be dead, without waiting for its locks to expire, and deletes its row.
-- p_ids, p_attempts, p_running: the attempts that it had begun, and whether each of them still ran when it died (null:
-- yes).  The arrays may contain attempts that it has ended since.  Begun attempts are lost (pgqueue_message_lose), and
-- those that still ran are blamed.  Messages that it had only claimed go back unchanged (pgqueue_message_release).
-- Returns how many attempts were lost.  A late or repeated call finds no message of the worker any more.
-- Locks rows of pgqueue_message in the order of ids and one of pgqueue_worker, without waiting for any: a row that
-- another session has locked is left until its lock expires.
declare
    v_message pgqueue_message;
    v_running boolean;
    v_ids bigint[] := '{}';
    v_attempts integer[] := '{}';
    v_count integer := 0;
begin
    for v_message in
        select m.* from pgqueue_message m
        where m.unlock_at is not null and m.worker = p_worker
        order by m.id
        for update skip locked
    loop
        select bool_or(b.running is not false) into v_running
        from unnest(p_ids, p_attempts, p_running) as b (id, attempt, running)
        where b.id = v_message.id and b.attempt = v_message.attempt;
        if v_running is null then
            v_ids := v_ids || v_message.id;
            v_attempts := v_attempts || v_message.attempt;
        else
            perform pgqueue_message_lose(v_message, format('worker %s died while it ran', p_worker), v_running);
            v_count := v_count + 1;
        end if;
    end loop;
    if v_ids <> '{}' then
        perform pgqueue_message_release(v_ids, v_attempts, p_worker);
    end if;
    delete from pgqueue_worker w
    where w.id = any (array(select d.id from pgqueue_worker d where d.id = p_worker for update skip locked));
    return v_count;
end
$$;
