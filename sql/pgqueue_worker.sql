-- A worker process that is alive, and whether it sleeps.  One small row a process; pgqueue_worker_wake reads the
-- sleepers at every enqueue, without a row lock.  A consumer that listens for raw messages is a worker with tasks false.
--
-- queues null means every queue; exclude_queues are never served.  asleep_until (epoch ms) is set while the worker
-- waits for a notification on the notification channel 'pgqueue_' || id, and is renewed at each poll: a worker that
-- died asleep is passed over as soon as it runs out.  has_room: it is awake, has nothing to do for a part of its slots and
-- looks every few milliseconds, so nobody else needs to be woken.
create table pgqueue_worker (
    id             text primary key,
    asleep_until   bigint,
    started_at     timestamptz not null default now(),
    seen_at        timestamptz not null default now(),
    pid            integer not null,
    slots          integer not null,
    tasks          boolean not null default true,
    has_room       boolean not null default false,
    hostname       text not null,
    queues         text[],
    exclude_queues text[] not null default '{}'
) with (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
