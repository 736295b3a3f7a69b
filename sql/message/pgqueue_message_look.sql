create or replace function pgqueue_message_look(p_message pgqueue_message, p_clean boolean) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Checks whether a message that waits for others still has to.  Returns true when it need not: it is ready then, or
-- cancelled where its policy requires that.  p_message is the row, which the caller has locked.
--   p_clean  the caller's transaction had written nothing before this call of pgqueue_message_settle, so that what it
--            read of awaited_id had been committed, and it will end soon
-- after_ids is in the order of ids.  awaited_id goes through it from the end, because messages end more or less in
-- their order: the ids behind it have ended.  One check probes only a part of a long after_ids, and records in
-- pgqueue_ended that the next call continues there.
-- pgqueue_message_settle calls this; consumers do not.
declare
    v_part constant integer := 2000;
    v_now bigint := pgqueue_now();
    v_ids bigint[] := p_message.after_ids;
    v_count integer := cardinality(v_ids);
    v_place integer := v_count;
    v_left bigint;
    v_check_at bigint;  -- null: the end will be recorded
    v_failed bigint;
    v_stays boolean := false;  -- it has not ended, and who ends it will see the waiting messages
    v_timeout text := current_setting('lock_timeout');
begin
    if p_message.attempt <> coalesce(p_message.suspended_attempt, p_message.attempt) or p_message.parked_at is not null then
        -- Its time-out came first: it has begun since then, and waits for nobody.
        update pgqueue_message m
        set after_ids = null, after_policy = null, check_at = null, checks = null, awaited_id = null
        where m.id = p_message.id;
        return false;
    end if;
    if p_message.awaited_id is not null then
        if exists (select from pgqueue_message d where d.id = p_message.awaited_id) then
            if p_clean then
                begin
                    -- Key share hides the row from no claim.  Though it skips what is locked, it waits for a transaction
                    -- that goes on after it has prolonged and then ended the other message.
                    perform set_config('lock_timeout', '10ms', true);
                    perform from pgqueue_message d where d.id = p_message.awaited_id for key share skip locked;
                    v_stays := found;
                    perform set_config('lock_timeout', v_timeout, true);
                exception
                    when lock_not_available then
                        v_stays := false;
                end;
            end if;
            if not v_stays then
                v_check_at := v_now + least(10000, greatest(100, (v_now - pgqueue_to_epoch(p_message.created_at)) / 10));
            end if;
            -- The result holds for all messages that wait for the same one.
            update pgqueue_message m
            set checks = least(m.checks, 1999999999) + 1, check_at = v_check_at
            where m.ctid = any (array(
                select w.ctid from pgqueue_message w
                where w.awaited_id = p_message.awaited_id and w.check_at <= v_now
                order by w.check_at
                limit 1000
                for no key update skip locked
            ));
            return false;
        end if;
        v_place := width_bucket(greatest(p_message.awaited_id, -9223372036854775807) - 1, v_ids);
    end if;

    if v_place > 0 then
        select v_ids[n] into v_left
        from generate_series(v_place, greatest(1, v_place - v_part + 1), -1) as n
        where (select true from pgqueue_message d where d.id = v_ids[n])
        limit 1;
        if found or v_place > v_part then
            update pgqueue_message m
            set checks = least(m.checks, 1999999999) + 1, check_at = v_now, awaited_id = coalesce(v_left, v_ids[v_place - v_part + 1])
            where m.id = p_message.id;
            if v_left is null then
                insert into pgqueue_ended (message_id, look_at) values (v_ids[v_place - v_part + 1], v_now);
            end if;
            return false;
        end if;
    end if;

    if p_message.after_policy = 'succeeded' then
        select a.message_id into v_failed
        from pgqueue_attempt a
        where a.message_id = any (v_ids[v_count - v_part + 1:]) and a.final and a.status <> 'succeeded'
        limit 1;
        if v_failed is null and v_count > v_part then  -- that part has succeeded: the next part follows
            update pgqueue_message m
            set checks = least(m.checks, 1999999999) + 1, check_at = v_now, awaited_id = v_ids[1], after_ids = v_ids[:v_count - v_part]
            where m.id = p_message.id;
            insert into pgqueue_ended (message_id, look_at) values (v_ids[1], v_now);
            return false;
        end if;
    end if;
    if v_failed is null then
        update pgqueue_message m
        set dequeue_at = v_now, in_line = true, after_ids = null, after_policy = null, check_at = null, checks = null, awaited_id = null
        where m.id = p_message.id;
        perform pgqueue_worker_wake(p_message.queue, p_message.task is not null);
    else
        delete from pgqueue_message m where m.id = p_message.id;
        p_message.dequeue_at := v_now;
        perform pgqueue_attempt_append(p_message, 'cancelled', true, jsonb_build_object(
            'class', 'django_pgqueue.exceptions.DependencyFailed',
            'message', format('message %s had to succeed first, but did not', v_failed)));
    end if;
    return true;
end
$$;
