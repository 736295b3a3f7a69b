create or replace function pgqueue_message_create_unique(
    p_unique_key text,
    p_content jsonb,
    p_queue text default 'default',
    p_task text default null,
    p_priority integer default 0,
    p_dequeue_at bigint default null,
    p_channel text default null,
    p_headers jsonb default null,
    p_max_attempts integer default 5,
    p_on_conflict text default 'keep',
    p_until_started boolean default false,
    p_max_lost integer default null,
    p_version text default null,
    out p_id bigint,
    out p_created boolean
)
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Enqueues one message unless another one holds p_unique_key.  Returns the id of the message that now holds the key,
-- and whether this call created it.  The key is held until the message leaves the queue or, with p_until_started,
-- until its first attempt begins.  A message that was asked to stop (pgqueue_message_request_cancel) has given its key
-- up, so that a message that is enqueued after that will run.  When a waiting message holds the key:
--   keep       nothing happens to it
--   replace    it gets all values of this call
--   debounce   it gets the dequeue_at of this call: it runs when no call has come for a while
-- With both it expires when this call says, unless it has begun before, as one that waits for a retry: that never expires.
-- Where that is so long after the enqueue, created_at is the time of this call.
-- Where no message holds the key but p_channel is full or was released (pgqueue_channel_room), p_id is null.
-- A running message is never changed, whatever p_on_conflict is, nor one of a durable task that has begun: its steps have
-- been done with the arguments that it has.  No conflict breaks the caller's transaction; only
-- another value of p_on_conflict is an error.
-- Waits for a transaction that is about to enqueue the same key: whether there is a conflict depends on its end.
-- Writes pgqueue_message; a message that this call makes ready wakes a sleeping worker.
declare
    v_now bigint := pgqueue_now(now());
    v_running boolean;
    v_attempt integer;
    v_queue text;
    v_expires constant text[] := array['expires_at', 'expires_us'];  -- headers
begin
    if p_on_conflict in ('keep', 'replace', 'debounce') is not true then
        raise 'p_on_conflict is %', quote_nullable(p_on_conflict)
            using errcode = 'invalid_parameter_value', hint = 'It must be keep, replace or debounce.';
    end if;
    if pgqueue_message_is_large(p_content) or pgqueue_message_is_large(p_headers) then
        p_content := pgqueue_message_readable(p_content, 'content');
        p_headers := pgqueue_message_readable(p_headers, 'headers');
    end if;
    for v_round in 1 .. 1000 loop
        if p_channel is not null and pgqueue_channel_room(p_channel) <= 0
           and not exists (
                select from pgqueue_message m
                where m.unique_key = p_unique_key and m.cancel_requested_at is null
                  and (m.attempt = 0 or not m.unique_until_started)
           ) then
            p_created := false;
            return;
        end if;
        insert into pgqueue_message as m (
            content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost, version, created_at,
            unique_key, unique_until_started, in_line)
        values (p_content, p_queue, p_task, p_priority, coalesce(p_dequeue_at, v_now), p_channel, p_headers,
                p_max_attempts, p_max_lost, p_version, pgqueue_clock(now()), p_unique_key, p_until_started,
                coalesce(p_dequeue_at, v_now) <= v_now)
        on conflict (unique_key)
            where unique_key is not null and cancel_requested_at is null and (attempt = 0 or not unique_until_started)
            do nothing
        returning m.id into p_id;
        if found then
            p_created := true;
            if coalesce(p_dequeue_at, v_now) <= v_now then
                perform pgqueue_worker_wake(p_queue, p_task is not null);
            else
                perform pgqueue_worker_wake_by(p_queue, p_task is not null, p_dequeue_at);
            end if;
            return;
        end if;

        p_created := false;
        select m.id, m.attempt,
               m.worker is not null or m.suspended_attempt is not null
               or (m.attempt > 0 and exists (select from pgqueue_step s where s.message_id = m.id))
        into p_id, v_attempt, v_running
        from pgqueue_message m
        where m.unique_key = p_unique_key and m.cancel_requested_at is null
          and (m.attempt = 0 or not m.unique_until_started);
        -- It may have ended, or given up the key, since the insert met it: then the key is free.
        continue when not found;
        if v_running or p_on_conflict = 'keep' then
            return;
        end if;

        -- Never locks a running message, even to look: its worker would wait until the caller's transaction ends.
        if p_on_conflict = 'debounce' then
            update pgqueue_message m
            set dequeue_at = case when m.alone_at is null then coalesce(p_dequeue_at, v_now) else 9223372036854775807 end,
                alone_at = case when m.alone_at is not null then coalesce(p_dequeue_at, v_now) end, parked_at = null,
                created_at = case when p_headers ? 'expires_us' then pgqueue_clock(now()) else m.created_at end,
                headers = case when m.headers ?| v_expires or p_headers ?| v_expires
                               then coalesce(m.headers, '{}') - v_expires
                                    || (select coalesce(jsonb_object_agg(h.key, h.value), '{}') from jsonb_each(p_headers) as h
                                        where h.key = any (v_expires))
                               else m.headers end,
                in_line = m.alone_at is null and coalesce(p_dequeue_at, v_now) <= v_now
            where m.unique_key = p_unique_key and m.cancel_requested_at is null
              and (m.attempt = 0 or not m.unique_until_started) and m.worker is null and m.attempt = v_attempt
            returning m.id, m.queue into p_id, v_queue;
        else
            update pgqueue_message m
            set content = p_content, queue = p_queue, task = p_task, priority = p_priority,
                dequeue_at = coalesce(p_dequeue_at, v_now), channel = p_channel, headers = p_headers,
                max_attempts = m.attempt + case when p_max_attempts < 2000000000 - m.attempt then p_max_attempts
                                                when p_max_attempts is not null then 2000000000 - m.attempt end,  -- all of them, whatever it has used before
                in_line = coalesce(p_dequeue_at, v_now) <= v_now, unique_until_started = p_until_started, lost = 0,
                max_lost = p_max_lost, version = p_version, alone_at = null, unknown_since = null, parked_at = null,
                state = null, created_at = case when p_headers ? 'expires_us' then pgqueue_clock(now()) else m.created_at end,
                last_error = null, progress = null
            where m.unique_key = p_unique_key and m.cancel_requested_at is null
              and (m.attempt = 0 or not m.unique_until_started) and m.worker is null and m.attempt = v_attempt
            returning m.id, m.queue into p_id, v_queue;
        end if;
        continue when not found;  -- it has begun or ended since
        if coalesce(p_dequeue_at, v_now) <= v_now then
            perform pgqueue_worker_wake(v_queue);
        else
            perform pgqueue_worker_wake_by(v_queue, null, p_dequeue_at);
        end if;
        return;
    end loop;
    raise exception 'row-level security hides the message that holds the unique key %', quote_literal(left(p_unique_key, 100))
        using errcode = 'insufficient_privilege',
              hint = 'Use another key for each tenant, or let the role bypass row-level security of pgqueue_message.';
end
$$;
