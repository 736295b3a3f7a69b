-- Schedules: a task, its content, and a rule (cron, or an interval in ms) from which clients compute the slots, the
-- times at which it is due.  SQL knows no cron: clients pass slots (pgqueue_schedule_fire), and SQL uses each once.
-- next_at (epoch ms) is the first slot that has not been dealt with.
-- declared: the code of a project declares the schedule; the others were made by hand.
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
    constraint pgqueue_schedule_name_short check (octet_length(name) between 1 and 255 and name !~ '[\u0001-\u001f\u007f]'),
    constraint pgqueue_schedule_names_short check (
        octet_length(task) between 1 and 255 and octet_length(queue) between 1 and 255
        and task !~ '[\u0001-\u001f\u007f]' and queue !~ '[\u0001-\u001f\u007f]'),
    constraint pgqueue_schedule_rule_short check (octet_length(cron) <= 1020 and octet_length(timezone) <= 255),
    constraint pgqueue_schedule_attempts_range check (max_attempts between 0 and 2000000000),
    constraint pgqueue_schedule_times_of_calendar check (paused_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_schedule_one_rule check (num_nonnulls(cron, interval_ms) = 1),
    constraint pgqueue_schedule_interval_positive check (interval_ms > 0),
    constraint pgqueue_schedule_priority_range check (priority between -100 and 100),
    constraint pgqueue_schedule_catch_up_known check (catch_up in ('skip', 'one', 'all'))
);

-- The used slots.  The primary key makes a slot fire at most once, however many workers fire it: there is no leader.
create table pgqueue_schedule_slot (
    name       text not null,
    slot_at    bigint not null,
    message_id bigint,
    primary key (name, slot_at),
    constraint pgqueue_schedule_slot_name_short check (octet_length(name) between 1 and 255)
);

-- Which worker declares a schedule, and how (declaration is a hash of all its values).  While a worker lives that
-- declares the present row of pgqueue_schedule, no other declaration replaces it (pgqueue_schedule_declare).  Written
-- when a worker starts; the rows of workers that have left are removed within an hour.
create table pgqueue_schedule_declaration (
    declaration bigint not null,
    name        text not null,
    worker      text not null,
    primary key (name, worker),
    constraint pgqueue_schedule_declaration_names_short check (
        octet_length(name) between 1 and 255 and octet_length(worker) <= 255)
);
