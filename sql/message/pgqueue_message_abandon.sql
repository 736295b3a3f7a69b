create or replace function pgqueue_message_abandon(p_ids bigint[], p_attempts integer[], p_worker text) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives up attempts that have begun, because the caller stops: they are lost (pgqueue_message_lose), and the messages
-- are ready again, unless this was the last loss, or they were asked to stop.  They are not to blame.  Returns their ids.
-- Locks rows of pgqueue_message in the order of ids; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
begin
    for v_message in
        select m.* from pgqueue_message m
        where m.id = any (p_ids)
          and m.worker = p_worker
          and m.attempt = p_attempts[array_position(p_ids, m.id)]
        order by m.id
        for no key update  -- the transaction of an atomic task or step may hold it for key share
    loop
        perform pgqueue_message_lose(v_message, format('worker %s stopped while it ran', p_worker), null);
        return next v_message.id;
    end loop;
end
$$;
