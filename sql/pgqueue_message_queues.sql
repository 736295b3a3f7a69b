create or replace function pgqueue_message_queues() returns setof text
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- The queues that have waiting messages, in the order of their names: one probe of pgqueue_message_ready_ix for
    -- each queue (a loose index scan), however many messages they hold.
    with recursive present as (
        (select m.queue from pgqueue_message m where m.unlock_at is null order by m.queue limit 1)
        union all
        select (select m.queue from pgqueue_message m where m.unlock_at is null and m.queue > p.queue order by m.queue limit 1)
        from present p
        where p.queue is not null
    )
    select p.queue from present p where p.queue is not null
$$;
