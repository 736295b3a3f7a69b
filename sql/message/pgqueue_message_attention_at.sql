create or replace function pgqueue_message_attention_at() returns bigint
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
    -- Returns when a worker that rests has to look, though no waiting message is due then (epoch ms; null: never): the
    -- first lock that runs out, the first check of a message that waits for others, the first end that was not looked
    -- at, and the first quarantined message.  For waiting messages there is pgqueue_message_next_at.
    -- Behind a hundred quarantined messages there may be another one: then it is in a minute at the latest.
    -- Where events of lanes wait for a dequeue, or a message is parked, it is now.
    -- One probe each of pgqueue_message_locked_ix, pgqueue_message_check_ix and pgqueue_ended, a hundred steps at most
    -- along pgqueue_message_alone_ix, and one each of pgqueue_arrival and pgqueue_message_parked_ix.
    select least(
        (select m.unlock_at from pgqueue_message m where m.unlock_at is not null order by m.unlock_at limit 1),
        (select m.check_at from pgqueue_message m where m.check_at is not null order by m.check_at limit 1),
        -- Where the clock was ahead, it is now (pgqueue_message_settle).
        (select case when e.look_at > pgqueue_now() + 60000 then pgqueue_now() else e.look_at end
         from pgqueue_ended e order by e.look_at, e.id limit 1),
        (select least(min(q.alone_at) filter (where q.is_running), case when count(*) = 100 then pgqueue_now() + 60000 end)
         from (select m.alone_at,
                      (select true from pgqueue_queue p where p.name = m.queue and p.paused_at is not null) is null as is_running
               from (select m.alone_at, m.queue from pgqueue_message m
                     where m.alone_at is not null and m.task is not null and m.unlock_at is null
                     order by m.lost, m.alone_at, m.id limit 100) as m) as q),
        (select pgqueue_now() from (select from pgqueue_arrival a order by a.channel, a.queue, a.raw limit 1) as w),
        (select pgqueue_now()
         from (select from pgqueue_message m
               where m.parked_at is not null and m.task is not null
               order by m.queue, m.task, m.parked_at limit 1) as w))
$$;
