-- What is enqueued again and again: a task, its content, and a rule (cron, or an interval in ms) from which clients work
-- out the slots, the times at which it is due.  SQL knows no cron: it is told the slots (pgqueue_schedule_fire) and sees
-- to it that each is used once.  next_at (epoch ms) is the first slot that has not been dealt with.
-- declared says that the schedule stands in the code of a project; the others were made by hand.
create table pgqueue_schedule (
    name         text primary key,
    next_at      bigint not null,
    interval_ms  bigint,
    paused_at    timestamptz,
    max_attempts integer,
    priority     smallint not null default 0,
    declared     boolean not null default false,
    task         text not null,
    queue        text not null default 'default',
    cron         text,
    timezone     text not null default 'UTC',
    catch_up     text not null default 'one',
    content      jsonb not null default '{"args": [], "kwargs": {}}',
    constraint pgqueue_schedule_one_rule check (num_nonnulls(cron, interval_ms) = 1),
    constraint pgqueue_schedule_interval_positive check (interval_ms > 0),
    constraint pgqueue_schedule_priority_range check (priority between -100 and 100),
    constraint pgqueue_schedule_catch_up_known check (catch_up in ('skip', 'one', 'all'))
);

-- The slots that have been used.  The primary key is what makes a slot fire at most once, whoever fires it and however
-- many at a time: there is no leader.
create table pgqueue_schedule_slot (
    name       text not null,
    slot_at    bigint not null,
    message_id bigint,
    primary key (name, slot_at)
);
