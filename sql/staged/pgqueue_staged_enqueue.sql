create or replace function pgqueue_staged_enqueue(
    p_run_id text,
    p_epoch bigint,
    p_batch uuid,
    p_tokens uuid[],
    p_rows bigint,
    p_replay text default null
) returns bigint
language plpgsql
set search_path from current
as $$
-- Enqueues the rows that the tasks p_tokens have staged as p_batch, once.  Returns how many rows that were, or null
-- when the ledger has this epoch of the run already.  A row whose unique key is held makes no message.
-- p_rows is the required number of rows; with another number, or when a channel is full, it raises an error and nothing
-- happens.  A second caller with the same run waits for the first.  Rows from other tries of tasks are deleted.
-- p_replay is the name of a replay: it also raises an error when a message with the header enqueued_again_from was
-- replayed under this name before.
-- Writes pgqueue_ledger, pgqueue_replayed, pgqueue_message and pgqueue_staged; wakes one sleeping worker for each queue with a ready
-- message.
declare
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
    v_plain bigint;
    v_others bigint := 0;
    v_queue text;
    v_messages jsonb;
    v_bytes bigint := 0;
    v_calls refcursor;
    v_made bigint;
    v_refused bigint;
    v_known bigint;
begin
    insert into pgqueue_ledger as l (run_id, epoch, rows) values (p_run_id, p_epoch, p_rows)
    on conflict (run_id) do update set epoch = excluded.epoch, rows = l.rows + excluded.rows, written_at = now()
    where l.epoch < excluded.epoch;
    if not found then
        delete from pgqueue_staged s where s.batch = p_batch;
        return null;
    end if;

    if p_replay is not null then
        delete from pgqueue_replayed r where r.replayed_at < now() - interval '365 days';
        with first as (
            insert into pgqueue_replayed (replay, message_id)
            select p_replay, (s.headers ->> 'enqueued_again_from')::bigint
            from pgqueue_staged s
            where s.batch = p_batch and s.token = any (p_tokens) and s.headers ? 'enqueued_again_from'
            order by 2
            on conflict do nothing
            returning 1)
        select p_rows - count(*) into v_known from first;
        if v_known > 0 then
            raise exception 'another run has replayed % of the messages of run %', v_known, p_run_id
                using hint = 'Nothing was enqueued. Run the replay again: it selects only those that are left.';
        end if;
    end if;

    insert into pgqueue_message (content, queue, task, priority, dequeue_at, headers, max_attempts, created_at, in_line)
    select case when pgqueue_message_is_large(s.content) then pgqueue_message_readable(s.content, 'content')
                else s.content end,
           s.queue, s.task, s.priority, coalesce(s.dequeue_at, v_now),
           case when pgqueue_message_is_large(s.headers) then pgqueue_message_readable(s.headers, 'headers')
                else s.headers end,
           s.max_attempts, v_clock, coalesce(s.dequeue_at, v_now) <= v_now
    from pgqueue_staged s
    where s.batch = p_batch and s.token = any (p_tokens) and s.channel is null and s.unique_key is null;
    get diagnostics v_plain = row_count;
    for v_queue in
        select distinct s.queue from pgqueue_staged s
        where s.batch = p_batch and s.token = any (p_tokens) and coalesce(s.dequeue_at, v_now) <= v_now
            and s.channel is null and s.unique_key is null
            and exists (select from pgqueue_worker w where w.asleep_until is not null)
    loop
        perform pgqueue_worker_wake(v_queue);
    end loop;
    if exists (select from pgqueue_worker w where w.silent_until is not null) then
        perform pgqueue_worker_wake_by(l.queue, null, l.dequeue_at)
        from (
            select s.queue, min(s.dequeue_at) as dequeue_at from pgqueue_staged s
            where s.batch = p_batch and s.token = any (p_tokens) and s.dequeue_at > v_now
                and s.channel is null and s.unique_key is null
            group by s.queue
        ) as l;
    end if;

    if v_plain <> p_rows then
        -- A jsonb array has room for 256 MB.  A number may take two bytes of text, and twelve there.
        select count(*), sum(case when pgqueue_message_is_large(s.content) or pgqueue_message_is_large(s.headers)
                                  then octet_length(s.content::text) + coalesce(octet_length(s.headers::text), 0)
                                  else 0 end)
        into v_others, v_bytes
        from pgqueue_staged s
        where s.batch = p_batch and s.token = any (p_tokens) and (s.channel is not null or s.unique_key is not null);
    end if;
    if v_plain + v_others <> p_rows then
        raise exception 'run % has staged % rows, and pgqueue_staged has %', p_run_id, p_rows, v_plain + v_others
            using hint = 'The server crashed, or another session emptied pgqueue_staged. Nothing was enqueued: run the write again.';
    end if;

    if v_others > 5000 or v_bytes >= 16777216 then
        -- Several calls below: keys are in order within a call, but other bulks may begin between two calls.
        perform pgqueue_message_lock_keys(t.task, true)
        from (select distinct s.task from pgqueue_staged s
              where s.batch = p_batch and s.token = any (p_tokens) and s.unique_key is not null order by 1) as t;
    end if;
    open v_calls for
        -- Skipped when there are none: the search alone would read all rows again.
        select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                   'queue', o.queue, 'task', o.task, 'priority', o.priority, 'dequeue_at', o.dequeue_at,
                   'channel', o.channel, 'unique_key', o.unique_key, 'on_conflict', 'keep'))
                   || jsonb_build_object('content', o.content, 'headers', o.headers, 'max_attempts', o.max_attempts)
                   order by o.place)
        from (select k.*, sum(case when pgqueue_message_is_large(k.content) or pgqueue_message_is_large(k.headers)
                                   then octet_length(k.content::text) + coalesce(octet_length(k.headers::text), 0)
                                   else 0 end) over (order by k.place) as bytes
              from (select s.*, row_number() over (order by s.unique_key collate "C" nulls first) as place
                    from pgqueue_staged s
                    where s.batch = p_batch and s.token = any (p_tokens)
                      and (s.channel is not null or s.unique_key is not null) and v_others > 0) as k) as o
        group by (o.place - 1) / 5000, o.bytes / 16777216
        order by (o.place - 1) / 5000, o.bytes / 16777216;
    loop
        fetch v_calls into v_messages;  -- a loop over the query itself would fetch fifty at a time into memory
        exit when not found;
        select count(*), count(*) filter (where c.id is null) into v_made, v_refused
        from pgqueue_message_create_many(v_messages) as c (id);
        v_others := v_others - v_made;
        if v_refused > 0 then
            raise exception 'run % has % rows or more whose channel is full', p_run_id, v_refused
                using hint = 'Nothing was enqueued. Run the write again when the channel has room, or enqueue fewer rows at a time.';
        end if;
    end loop;
    close v_calls;
    if v_others > 0 then  -- it waited for keys, and the writer, whose connection broke, has given up meanwhile
        raise exception 'rows of run % were deleted while it was enqueued', p_run_id
            using hint = 'Nothing was enqueued: run the write again.';
    end if;

    delete from pgqueue_staged s where s.batch = p_batch;
    return p_rows;
end
$$;
