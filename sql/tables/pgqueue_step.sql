-- The steps of durable tasks.  Each row is written once and never changed, by the holder of the message.
-- kind says what it is: step, atomic, enqueue, sleep, event, approval.  status says what happened:
--   began    a step with recovery="manual" is about to run its function
--   failed   its function raised: error has the reason, and the step runs again in the next attempt
--   waiting  the task is suspended by this step; until (epoch ms) is the time at which the wait ends; null: never;
--            result is the event that it waits for, where its name is not that of the step
--   unasked  an attempt has come to its end without asking for this step, which an earlier one had done: after a deploy
--   done     result is what the step returns in every later attempt
-- Partitioned by the day (UTC) of recorded_at, so that retention drops partitions: before pgqueue_step_maintain drops a day,
-- it gives the steps of messages that are still in the queue, or have ended since, another recorded_at.
create table pgqueue_step (
    message_id  bigint not null,
    recorded_at timestamptz not null,
    started_at  timestamptz,
    finished_at timestamptz not null,
    until       bigint,
    attempt     integer not null,
    kind        text not null,
    status      text not null,
    name        text not null,
    error       text,
    result      jsonb,
    constraint pgqueue_step_name_short check (name <> '' and octet_length(name) <= 255),
    constraint pgqueue_step_times_of_calendar check (
        least(recorded_at, started_at, finished_at) >= '0001-01-02 00:00:00+00'
        and greatest(recorded_at, started_at, finished_at) <= '9999-12-30 00:00:00+00'),
    constraint pgqueue_step_words_known check (
        kind in ('step', 'atomic', 'enqueue', 'sleep', 'event', 'approval')
        and status in ('began', 'failed', 'waiting', 'unasked', 'done'))
) partition by range (recorded_at);

create index pgqueue_step_message_ix on pgqueue_step (message_id);

-- For the doctor.  A deploy makes a few such rows, and no other row costs anything.
create index pgqueue_step_unasked_ix on pgqueue_step (recorded_at) where status = 'unasked';

create table pgqueue_step_default partition of pgqueue_step default;

-- As those of pgqueue_attempt: rows leave the default partition for others.
alter table pgqueue_step replica identity full;
alter table pgqueue_step_default replica identity full;

-- What a durable task may spend in all of its attempts together, and has spent (pgqueue_budget_spend).
create table pgqueue_budget (
    message_id bigint not null,
    name       text not null,
    spent      numeric not null,
    primary key (message_id, name),
    constraint pgqueue_budget_name_short check (name <> '' and octet_length(name) <= 255)
);

-- Messages that a step of the message parent_id has enqueued, or, with by_after, after which the message parent_id comes
-- and whose results it wants (pgqueue_message_create_after).  status, result and error are the end of the message, and
-- null as long as the history has it: they are copied here before the history is dropped (pgqueue_child_keep).
-- cancels: the message is cancelled with its parent, unless it has begun.  A message that was enqueued again from a step
-- is a parent, too (pgqueue_step_enqueue).
create table pgqueue_child (
    message_id    bigint not null,
    parent_id     bigint not null,
    created_at    timestamptz not null,
    cancels       boolean not null default true,
    status        text,
    error_class   text,
    error_message text,
    result        jsonb,
    by_after      boolean not null default false,
    primary key (message_id, parent_id),
    constraint pgqueue_child_times_of_calendar check (created_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
);

create index pgqueue_child_parent_ix on pgqueue_child (parent_id);

-- Retention looks at the oldest ones only.
create index pgqueue_child_created_ix on pgqueue_child using brin (created_at);
