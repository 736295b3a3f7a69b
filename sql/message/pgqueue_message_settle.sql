create or replace function pgqueue_message_settle(p_limit integer default 100, p_brief boolean default true) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
-- Checks messages that wait for others (pgqueue_message_create_after), and returns how many need not wait any more:
-- they are ready now, or cancelled where their policy requires that.  It does the same for suspended messages whose
-- event has been emitted (pgqueue_event_arrive).  Checks up to p_limit messages whose check_at has
-- come, and up to p_limit that wait for ended messages (pgqueue_ended): each of these gets an equal share, and the
-- next calls continue with the rest.  It reads some megabytes of after_ids in all, however large they are.
-- A message waits for one of the others at a time, awaited_id.  When awaited_id is written, the other message may be
-- ending already, and the transaction that ends it may not see the waiting one.  So check_at stays near, until a check
-- in a later transaction has locked the row of the other message for a moment: a transaction that deletes it
-- afterwards does see the waiting messages (pgqueue_message_ended).  From then on check_at is null, and however many
-- messages wait, none is checked before something has happened.
-- p_brief: the caller's transaction ends right after this.  One that stays open does not lock the other row, because
-- the end of the other message would wait for it; the messages that it checks have a check_at for the next call.
-- pgqueue_message_dequeue calls this when a message has ended; workers call it several times a second for the rest.
-- Locks rows of pgqueue_message without waiting for any; writes pgqueue_message, pgqueue_ended and pgqueue_attempt; wakes a
-- sleeping worker for each message that became ready.
declare
    v_now bigint := pgqueue_now();
    v_clean boolean;
    v_ended bigint[];
    v_events text[];
    v_message pgqueue_message;
    v_awaited bigint[] := '{}';
    v_left bigint := 4000000;  -- bytes of after_ids
    v_looks integer := 0;
    v_settled integer := 0;
begin
    v_clean := p_brief
        and pg_current_xact_id_if_assigned() is null and current_setting('transaction_isolation') = 'read committed';
    with taken as (
        delete from pgqueue_ended e
        where e.ctid = any (array(
            select t.ctid from pgqueue_ended t
            where t.look_at <= v_now or t.look_at > v_now + 60000  -- nobody puts it off for so long: the clock was ahead
            order by t.look_at, t.id limit p_limit
            for update skip locked
        ))
        returning e.message_id, e.event
    )
    select array_agg(distinct t.message_id) filter (where t.event is null), array_agg(distinct t.event) filter (where t.event is not null)
    into v_ended, v_events
    from taken t;

    for v_message in
        select m.* from pgqueue_message m
        where m.check_at is not null and m.check_at <= v_now
        order by m.check_at
        limit p_limit
        for update skip locked
    loop
        -- While the awaited message is there, one check is enough for all that wait for it.
        continue when v_message.awaited_id = any (v_awaited);
        exit when v_left <= 0;
        v_left := v_left - pg_column_size(v_message.after_ids);
        v_settled := v_settled + pgqueue_message_look(v_message, v_clean)::integer;
        v_awaited := v_awaited || (select d.id from pgqueue_message d where d.id = v_message.awaited_id);
    end loop;

    if v_ended is not null then
        for v_message in
            select w.*
            from unnest(v_ended) as e (id)
            cross join lateral (
                select m.* from pgqueue_message m
                where m.awaited_id = e.id
                limit ceil(p_limit::numeric / cardinality(v_ended))
                for update skip locked
            ) as w
        loop
            exit when v_left <= 0 and v_looks > 0;  -- one of them in each call, whatever the first part has read
            v_left := v_left - pg_column_size(v_message.after_ids);
            v_looks := v_looks + 1;
            v_settled := v_settled + pgqueue_message_look(v_message, v_clean)::integer;
        end loop;
        -- Where other sessions have locked all the rest, it is too early.
        insert into pgqueue_ended (message_id, look_at)
        select e.id, v_now + case when v_looks = 0 then 100 else 0 end
        from unnest(v_ended) as e (id)
        where (select true from pgqueue_message m where m.awaited_id = e.id limit 1)
          and (select true from pgqueue_message d where d.id = e.id) is null;
    end if;
    if v_events is not null then
        v_settled := v_settled + pgqueue_event_arrive(v_events, p_limit);
    end if;
    return v_settled;
end
$$;
