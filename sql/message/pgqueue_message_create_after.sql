create or replace function pgqueue_message_create_after(
    p_after_ids bigint[],
    p_content jsonb,
    p_queue text default 'default',
    p_task text default null,
    p_priority integer default 0,
    p_dequeue_at bigint default null,
    p_channel text default null,
    p_headers jsonb default null,
    p_max_attempts integer default 5,
    p_policy text default 'finished',
    p_max_lost integer default null,
    p_version text default null,
    p_keep_results boolean default false
) returns bigint
language plpgsql
set search_path from current
as $$
-- Enqueues one message that waits until the messages p_after_ids have left the queue.  Returns its id, or null when
-- p_channel is full or was released (pgqueue_channel_room) and nothing was enqueued.
-- p_policy defines what happens when one of them did not succeed:
--   finished    nothing: the message runs all the same
--   succeeded   the message is cancelled
-- p_keep_results: how those messages end is kept for this one, however short the history is (pgqueue_child.by_after).
-- pgqueue_child_outcomes returns it, also when the message is enqueued again from the history.
-- Those messages must have been committed, or be of this transaction; one that is not in the queue counts as ended.
-- There is no counter: when a message has ended, pgqueue_message_settle checks whether any of them is left.  So
-- there is no row that all of them would have to write, and nothing that a crash could leave wrong.
declare
    v_max constant integer := 100000;
    v_id bigint;
    v_gone bigint[];
begin
    if cardinality(p_after_ids) > v_max then
        raise exception 'p_after_ids has % ids', cardinality(p_after_ids)
            using errcode = 'program_limit_exceeded',
                  hint = format('It may have %s: let messages between them wait for a part each.', v_max);
    end if;
    with given as (
        select array(select distinct a.id from unnest(p_after_ids) as a (id) where a.id is not null order by 1) as ids,
               pgqueue_now(now()) as now
    ),
    created as (
        insert into pgqueue_message (
            content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost, version, created_at,
            after_ids, after_policy, check_at, checks, awaited_id, in_line)
        select case when pgqueue_message_is_large(p_content) then pgqueue_message_readable(p_content, 'content')
                    else p_content end,
               p_queue, p_task, p_priority, 9223372036854775807, p_channel,
               case when pgqueue_message_is_large(p_headers) then pgqueue_message_readable(p_headers, 'headers')
                    else p_headers end,
               p_max_attempts, p_max_lost, p_version, pgqueue_clock(now()), g.ids, p_policy,
               greatest(p_dequeue_at, g.now), 0,
               case when coalesce(p_dequeue_at, g.now) <= g.now then g.ids[cardinality(g.ids)] end,
               false
        from given g
        where p_channel is null or coalesce(pgqueue_channel_room(p_channel), 1) > 0
        returning id, awaited_id, check_at
    ),
    told as (  -- no later end will report a message that has ended already
        insert into pgqueue_ended (message_id, look_at)
        select c.awaited_id, g.now from created c, given g
        where c.awaited_id is not null and (select true from pgqueue_message d where d.id = c.awaited_id) is null
    ),
    woken as (  -- a worker that rests would not come to its check
        select c.id, pgqueue_worker_wake_by(p_queue, null, c.check_at) from created c
    )
    select w.id into v_id from woken w;
    if p_keep_results and v_id is not null then
        with wanted as (
            insert into pgqueue_child (message_id, parent_id, created_at, cancels, by_after)
            select a.id, v_id, pgqueue_clock(), false, true
            from (select distinct i.id from unnest(p_after_ids) as i (id) where i.id is not null) as a
            returning message_id
        )
        select array_agg(w.message_id) into v_gone from wanted w
        where (select true from pgqueue_message d where d.id = w.message_id) is null;
        -- Apart, because each statement that names the history needs a lock for each day, and its indexes, until the
        -- caller's transaction ends.
        if v_gone is not null then
            update pgqueue_child c
            set status = a.status, error_class = a.error_class, error_message = a.error_message, result = a.result
            from unnest(v_gone) as i (id)
            cross join lateral (  -- what has ended already may be older than the history that is looked at later
                select h.status, h.error_class, h.error_message, h.result
                from pgqueue_attempt h
                where h.message_id = i.id and h.final
                order by h.id + 0 desc  -- not by the index of ids, from the newest of all on
                limit 1
            ) as a
            where c.message_id = i.id and c.parent_id = v_id;
        end if;
    end if;
    return v_id;
end
$$;
