create or replace function pgqueue_channel_room(p_name text) returns integer
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Returns how many messages the channel takes before it is full; null: any number.  A released channel takes none.
    -- Counts what the caller sees, and no further than max_size.  It does not count messages that other transactions
    -- have enqueued and not committed, because no enqueue is to wait for those.  So transactions that end at the same
    -- time may exceed max_size together.
    select case
        when c.released_at is not null then 0
        when c.max_size is not null then greatest(0, c.max_size - (
            select count(*)::integer
            from (select from pgqueue_message m where m.channel = p_name and m.unlock_at is null limit c.max_size) as w))
    end
    from pgqueue_channel c
    where c.name = p_name
$$;
