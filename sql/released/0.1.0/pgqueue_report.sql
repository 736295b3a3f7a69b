-- The results of the pipeline's report about the history, by the hour (UTC): small tables for the admin and for
-- dashboards.  A report replaces the hours that it covers, so reporting twice changes nothing.
-- Histograms are {"bucket": count}, where a bucket is ceil(ln(milliseconds) / ln(1.05)): counts of the same bucket can be
-- added up over hours, queues and tasks.

-- Messages enqueued and attempts ended, by queue, task and channel.
create table pgqueue_report_hour (
    id               bigint generated always as identity primary key,
    hour             timestamptz not null,
    queue            text not null,
    task             text,
    channel          text,
    enqueued         bigint not null,
    succeeded        bigint not null,
    deferred         bigint not null,
    retried          bigint not null,
    failed           bigint not null,
    cancelled        bigint not null,
    lost             bigint not null,
    messages         bigint not null,
    message_attempts bigint not null,
    sla_misses       bigint,
    wait_ms          double precision not null,
    run_ms           double precision not null,
    wait_histogram   jsonb not null,
    run_histogram    jsonb not null,
    constraint pgqueue_report_hour_times_of_calendar check (
        hour between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_report_hour_names_short check (
        octet_length(queue) <= 255 and octet_length(task) <= 255 and octet_length(channel) <= 255)
);

create index pgqueue_report_hour_ix on pgqueue_report_hour (hour);

-- How many messages were due and waiting, and how many ran.
create table pgqueue_report_queue (
    id          bigint generated always as identity primary key,
    hour        timestamptz not null,
    queue       text not null,
    depth       bigint not null,
    depth_max   bigint not null,
    running     double precision not null,
    running_max bigint not null,
    slots       bigint not null,
    constraint pgqueue_report_queue_times_of_calendar check (
        hour between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_report_queue_name_short check (octet_length(queue) <= 255)
);

create index pgqueue_report_queue_ix on pgqueue_report_queue (hour);

-- Errors by queue, task and class.
create table pgqueue_report_error (
    id          bigint generated always as identity primary key,
    hour        timestamptz not null,
    queue       text not null,
    task        text,
    error_class text not null,
    attempts    bigint not null,
    example     text,
    constraint pgqueue_report_error_times_of_calendar check (
        hour between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_report_error_names_short check (
        octet_length(queue) <= 255 and octet_length(task) <= 255 and octet_length(error_class) <= 1020)
);

create index pgqueue_report_error_ix on pgqueue_report_error (hour);
