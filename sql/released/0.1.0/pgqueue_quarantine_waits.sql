create or replace function pgqueue_quarantine_waits(
    p_queues text[] default null,
    p_exclude_queues text[] default '{}'
) returns boolean
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
    -- Returns whether pgqueue_quarantine_dequeue with these queues would take a message now.  Workers ask when they
    -- report that they are alive.
    -- The order and the scalar subqueries pin the plan: a walk along pgqueue_message_alone_ix, which is mostly empty.
    select (
        select true from pgqueue_message m
        where m.alone_at is not null and m.unlock_at is null and m.alone_at <= pgqueue_now()
          and (p_queues is null or m.queue = any (p_queues)) and m.queue <> all (p_exclude_queues)
          and (select true from pgqueue_queue q where q.name = m.queue and q.paused_at is not null) is null
          and (
              select true from pgqueue_channel c
              where c.name = m.channel and (c.running >= c.max_concurrency or c.release_at > pgqueue_now())
          ) is null
        order by m.lost, m.alone_at, m.id
        limit 1
    ) is not null
$$;
