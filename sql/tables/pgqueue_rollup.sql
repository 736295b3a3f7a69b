-- Figures of the ended attempts, by queue and task: of each five minutes (UTC) for the last hours, and of each hour for
-- the last weeks.  pgqueue_rollup_add adds the attempts that have ended since its last call, and pgqueue_rollup_prune
-- deletes what is old.  task is null for raw messages.
-- Counts, waits and runs have the meaning and the histograms those of pgqueue_report_hour: {"bucket": count}, where a
-- bucket is ceil(ln(milliseconds) / ln(1.05)), so they can be added up over times, queues and tasks.
create table pgqueue_rollup (
    id               bigint generated always as identity primary key,
    starts_at        timestamptz not null,
    minutes          smallint not null,
    queue            text not null,
    task             text,
    succeeded        bigint not null,
    deferred         bigint not null,
    retried          bigint not null,
    failed           bigint not null,
    cancelled        bigint not null,
    lost             bigint not null,
    messages         bigint not null,
    message_attempts bigint not null,
    wait_ms          double precision not null,
    run_ms           double precision not null,
    wait_histogram   jsonb not null,
    run_histogram    jsonb not null,
    constraint pgqueue_rollup_minutes_known check (minutes in (5, 60)),
    constraint pgqueue_rollup_times_of_calendar check (
        starts_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_rollup_names_short check (octet_length(queue) <= 255 and octet_length(task) <= 255),
    -- One row of another form would break every sum that it is part of.
    constraint pgqueue_rollup_histograms_are_objects_of_counts check (
        jsonb_typeof(wait_histogram) = 'object' and jsonb_typeof(run_histogram) = 'object'
        and not jsonb_path_exists(jsonb_build_array(wait_histogram, run_histogram),
            '$[*].keyvalue() ? (@.value.type() != "number" || @.value < 0 || @.value >= 1000000000000000
                                || @.value.floor() != @.value || !(@.key like_regex "^-?[0-9]{1,4}$"))'))
) with (fillfactor = 70);

create unique index pgqueue_rollup_key on pgqueue_rollup (minutes, starts_at, queue, coalesce(task, ''));

-- How far the history has been added up: one row.  All transactions below transaction_id are in the figures, but those
-- in open_ids, which ran for long and still ran at the last call.  newest_id is the first transaction that had not begun
-- then; attempt_id is an attempt close to the end of what was added, and gives the next call its size.
create table pgqueue_rollup_position (
    is_only        boolean primary key default true,
    transaction_id bigint not null default 0,
    newest_id      bigint not null default 0,
    attempt_id     bigint not null default 0,
    open_ids       bigint[] not null default '{}',
    looked_at      timestamptz,
    constraint pgqueue_rollup_position_is_only check (is_only),
    constraint pgqueue_rollup_position_times_of_calendar check (
        looked_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
);
