create or replace function pgqueue_edit_step(p_limit integer default 1000, p_version text default null) returns bigint
language plpgsql
set search_path from current
as $$
-- Does a part of the oldest edit that no other session works on, and returns its id; null: there is none.  Workers call
-- it in a transaction of its own until it returns null.  The position is written in the transaction that does the part,
-- so a worker may die at any time: another one goes on, and nothing is done twice.
-- Looks at p_limit ids at most.  p_version: that of the deploy, for messages that are enqueued again.
-- An error that will come again, such as a channel that is full, ends the edit, and the row has it; one of locks or of time does not.
-- Locks the row of the edit, then rows of pgqueue_message in the order of ids; waits for no row.
declare
    v_edit pgqueue_edit;
    v_ids bigint[];
    v_last bigint;
    v_part record;
    v_is_end boolean;
begin
    if p_limit is null or p_limit < 1 or octet_length(p_version) > 100 then  -- it would end the edit of somebody else
        raise exception 'p_limit is %, and p_version has % bytes', p_limit, coalesce(octet_length(p_version), 0)
            using errcode = 'invalid_parameter_value', hint = 'Pass 1 or more, and a version of up to 100 bytes.';
    end if;
    select e.* into v_edit from pgqueue_edit e
    where e.finished_at is null and e.stopped_at is null
    order by e.id limit 1
    for update skip locked;
    if not found then
        return null;
    end if;
    begin
        v_is_end := v_edit.position >= v_edit.last_id;
        if v_edit.action = 'enqueue_again' then
            select s.p_ids, s.p_last into v_ids, v_last
            from pgqueue_edit_attempts(v_edit.filter, v_edit.position, v_edit.last_id, p_limit) as s;
            select count(n) as p_done, 0::bigint as p_asked, 0::bigint as p_awaiting, 0::bigint as p_skipped,
                   '{}'::bigint[] as p_locked
            into v_part
            from pgqueue_attempt_enqueue(v_ids, p_version) as n;
            if v_part.p_done < cardinality(v_ids) then  -- and none of this part is enqueued
                raise exception 'the channel of % messages is full, or was released', cardinality(v_ids) - v_part.p_done;
            end if;
        else
            if v_is_end then
                v_ids := v_edit.locked_ids;
                v_last := v_edit.last_id;
            else
                select s.p_ids, s.p_last into v_ids, v_last
                from pgqueue_edit_messages(v_edit.filter, v_edit.position, v_edit.last_id, p_limit) as s;
            end if;
            -- A moment ago they had this argument and this error: to look at it again would take long, with all of them
            -- locked.  Since somebody else held them, they may have another one.
            select * into v_part from pgqueue_edit_change(
                v_edit.action, v_edit.parameters, v_ids,
                case when v_is_end then v_edit.filter else v_edit.filter - array['argument', 'error_group'] end);
        end if;
        -- At the end, or where there are too many, they are not tried once more.
        if v_is_end or cardinality(v_edit.locked_ids) > 10000 then
            v_part.p_skipped := v_part.p_skipped + cardinality(v_part.p_locked);
            v_part.p_locked := '{}';
        end if;
        v_edit.locked_ids := case when v_is_end then '{}' else v_edit.locked_ids || v_part.p_locked end;
        update pgqueue_edit e
        set position = greatest(v_last, e.position), done = e.done + v_part.p_done, asked = e.asked + v_part.p_asked,
            awaiting = e.awaiting + v_part.p_awaiting, skipped = e.skipped + v_part.p_skipped,
            locked_ids = v_edit.locked_ids, started_at = coalesce(e.started_at, pgqueue_clock()),
            finished_at = case when v_last >= e.last_id and v_edit.locked_ids = '{}' then pgqueue_clock() end
        where e.id = v_edit.id;
    exception
        when lock_not_available or deadlock_detected or serialization_failure or operator_intervention
            or insufficient_resources or system_error or internal_error then
            raise;
        when others then
            update pgqueue_edit e
            set error = left(sqlerrm, 500), started_at = coalesce(e.started_at, pgqueue_clock()), finished_at = pgqueue_clock()
            where e.id = v_edit.id;
    end;
    return v_edit.id;
end
$$;
