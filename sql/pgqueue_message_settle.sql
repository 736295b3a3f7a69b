create or replace function pgqueue_message_settle(
    p_limit integer default 100,
    p_force boolean default false,
    p_ended_ids bigint[] default '{}'
) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
-- Looks at messages that wait for others (pgqueue_message_create_after) and answers how many need not wait any more:
-- they are ready now, or cancelled where their policy says so.  The others are looked at again after a tenth of the
-- time that they have waited, at most 10 seconds; p_force does not wait for that.  p_ended_ids are messages of which the
-- caller knows that they have ended: who waited for one of them is looked at now.  That is a hint, and it may be lost: the
-- looks come all the same.  Where nobody waits it costs one index probe, however many ids there are.
-- Any consumer may call it at any time.  Locks rows of pgqueue_message without waiting for any; writes pgqueue_message
-- and pgqueue_attempt; wakes a sleeping worker for each message that became ready.
declare
    v_message pgqueue_message;
    v_now bigint := pgqueue_now();
    v_until bigint := case when p_force then 9223372036854775807 else v_now end;
    v_left bigint;
    v_failed bigint;
    v_settled integer := 0;
begin
    if exists (select from pgqueue_message m where m.awaited_id is not null) then
        update pgqueue_message m set check_at = v_now
        where m.ctid = any (array(
            select w.ctid from pgqueue_message w
            where w.awaited_id = any (p_ended_ids) and w.awaited_id is not null
            for no key update skip locked
        ));
    end if;

    for v_message in
        select m.* from pgqueue_message m
        where m.check_at is not null and m.check_at <= v_until and (m.check_at <= v_now or m.checks > 0)
        order by m.check_at
        limit p_limit
        for update skip locked
    loop
        -- The last one, because messages end more or less in their order: it is the first that is found, and its end is
        -- likely to be the end of all.
        select d.id into v_left
        from pgqueue_message d where d.id = any (v_message.after_ids) order by d.id desc limit 1;
        if found then
            update pgqueue_message m
            set checks = least(m.checks, 1999999999) + 1, awaited_id = v_left,
                check_at = v_now + least(10000, greatest(100, (v_now - pgqueue_to_epoch(m.created_at)) / 10))
            where m.id = v_message.id;
            continue;
        end if;

        v_failed := null;
        if v_message.after_policy = 'succeeded' then
            select a.message_id into v_failed
            from pgqueue_attempt a
            where a.message_id = any (v_message.after_ids) and a.final and a.status <> 'succeeded'
            limit 1;
        end if;
        if v_failed is null then
            update pgqueue_message m
            set dequeue_at = v_now, after_ids = null, after_policy = null, check_at = null, checks = null, awaited_id = null
            where m.id = v_message.id;
            perform pgqueue_worker_wake(v_message.queue, v_message.task is not null);
        else
            delete from pgqueue_message m where m.id = v_message.id;
            v_message.dequeue_at := v_now;
            perform pgqueue_attempt_append(v_message, 'cancelled', true, jsonb_build_object(
                'class', 'django_pgqueue.exceptions.DependencyFailed',
                'message', format('message %s, which had to succeed first, did not', v_failed)));
        end if;
        v_settled := v_settled + 1;
    end loop;
    return v_settled;
end
$$;
