create or replace function pgqueue_quarantine_waits(
    p_queues text[] default null,
    p_exclude_queues text[] default '{}'
) returns boolean
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Whether pgqueue_quarantine_dequeue with these queues would take a message now.  Workers ask when they say that they
    -- are there; where nothing is quarantined, it is one look at an empty index.
    select exists (
        select from pgqueue_message m
        where m.alone_at is not null and m.unlock_at is null and m.alone_at <= pgqueue_now()
          and (p_queues is null or m.queue = any (p_queues)) and m.queue <> all (p_exclude_queues)
          and not exists (select from pgqueue_queue q where q.name = m.queue and q.paused_at is not null)
          and not exists (
              select from pgqueue_channel c
              where c.name = m.channel and (c.running >= c.max_concurrency or c.release_at > pgqueue_now()))
    )
$$;
