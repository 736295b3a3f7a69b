-- A worker process that is alive, and whether it sleeps.  One small row a process; pgqueue_worker_wake reads the
-- sleepers at every enqueue, without a row lock.  A consumer that listens for raw messages is a worker with tasks false.
--
-- queues null means every queue; exclude_queues are never served.  asleep_until (epoch ms) is set while the worker
-- waits for a notification on the notification channel 'pgqueue_' || id, and is renewed at each poll: when it expires,
-- a worker that died asleep is no longer woken.  has_room: the worker is awake, has idle slots and polls every few
-- milliseconds, so no other worker needs to be woken.  problem: what it cannot do at present (maintenance without the
-- rights, say); the rest of its work goes on.  lacks: tasks of parked messages that it does not know; refuses: tasks that
-- it knows, but it can take the arguments of none of their parked messages; at most 50 each.  version: that of the deploy
-- that it runs, where its settings name one.  silent_until (epoch ms) is set while the worker rests: it has nothing to
-- do, says nothing before that time, and is alive all the same.  Everything that would be due before its next look wakes
-- it (pgqueue_worker_wake_by).  server_started_at (epoch ms): a session of the worker holds its advisory lock, on the
-- server that was started then; null: none does, and the locks of its messages decide whether it is alive.
-- is_asleep is there for its index alone.  ordered ('pause', 'stop', or null), ordered_slots, ordered_at and ordered_by
-- are orders of people, which the worker reads when it refreshes its row (pgqueue_worker_order).
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
    problem        text,
    queues         text[],
    exclude_queues text[] not null default '{}',
    lacks          text[],
    refuses        text[],
    version        text,
    silent_until   bigint,
    server_started_at bigint,
    is_asleep      boolean not null generated always as (asleep_until is not null) stored,
    ordered        text,
    ordered_slots  integer,
    ordered_at     timestamptz,
    ordered_by     text,
    -- 'pgqueue_' || id is the name of a notification channel, which has less than 64 bytes.
    constraint pgqueue_worker_id_short check (octet_length(id) between 1 and 55 and id !~ '[\u0001-\u001f\u007f]'),
    constraint pgqueue_worker_hostname_short check (octet_length(hostname) <= 255 and hostname !~ '[\u0001-\u001f\u007f]'),
    constraint pgqueue_worker_problem_short check (octet_length(problem) <= 2000),
    -- Every enqueue that looks for a sleeper reads these lists.
    constraint pgqueue_worker_queues_few check (
        octet_length(array_to_string(queues, '')) <= 65536 and octet_length(array_to_string(exclude_queues, '')) <= 65536
        and cardinality(queues) <= 1000 and cardinality(exclude_queues) <= 1000),
    constraint pgqueue_worker_version_short check (octet_length(version) <= 100 and version !~ '[\u0001-\u001f\u007f]'),
    constraint pgqueue_worker_lacks_few check (cardinality(lacks) <= 50 and octet_length(array_to_string(lacks, '')) <= 12750),
    constraint pgqueue_worker_refuses_few check (cardinality(refuses) <= 50 and octet_length(array_to_string(refuses, '')) <= 12750),
    constraint pgqueue_worker_order_known check (ordered in ('pause', 'stop') and ordered_slots between 1 and 1000
        and octet_length(ordered_by) <= 1020 and ordered_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_worker_times_of_calendar check (started_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'
        and seen_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
) with (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

-- What each enqueue asks: who sleeps, who has room, who rests.  No column of these indexes changes when a worker only
-- refreshes its row.
create index pgqueue_worker_asleep_ix on pgqueue_worker (id) where is_asleep;
create index pgqueue_worker_room_ix on pgqueue_worker (id) where has_room;
create index pgqueue_worker_silent_ix on pgqueue_worker (id) where silent_until is not null;
