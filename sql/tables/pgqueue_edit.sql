-- Edits: an action for everything that matches a filter, which workers do in steps (pgqueue_edit_step).  The filter and
-- the parameters are checked when an edit is asked for (pgqueue_edit_ask); who may ask is a matter of rights.
-- action      run_now, postpone, cancel, delete, move, prioritise: messages.  enqueue_again: final attempts
-- position    the last id that a step has looked at, from first_id on; last_id ends it: what comes later is not meant
-- done        messages that were changed.  asked: running ones that were asked to stop.  awaiting: those that wait for
--             others and were left out.  skipped: those that could not be changed, because they run, or need no change
-- locked_ids  messages that other sessions held when a step came by: they are tried once more at the end
create table pgqueue_edit (
    id          bigint generated always as identity primary key,
    first_id    bigint not null,
    last_id     bigint not null,
    position    bigint not null,
    done        bigint not null default 0,
    asked       bigint not null default 0,
    awaiting    bigint not null default 0,
    skipped     bigint not null default 0,
    asked_at    timestamptz not null default now(),
    started_at  timestamptz,
    stopped_at  timestamptz,
    finished_at timestamptz,
    action      text not null,
    asked_by    text not null,
    stopped_by  text,
    error       text,
    filter      jsonb not null default '{}',
    parameters  jsonb not null default '{}',
    locked_ids  bigint[] not null default '{}',
    constraint pgqueue_edit_action_known check (
        action in ('run_now', 'postpone', 'cancel', 'delete', 'move', 'prioritise', 'enqueue_again')),
    constraint pgqueue_edit_names_short check (
        octet_length(asked_by) between 1 and 255 and octet_length(stopped_by) <= 255 and octet_length(error) <= 2000),
    constraint pgqueue_edit_filter_small check (octet_length(filter::text) <= 8000 and octet_length(parameters::text) <= 1000),
    constraint pgqueue_edit_times_of_calendar check (
        least(asked_at, started_at, stopped_at, finished_at) >= '0001-01-02 00:00:00+00'
        and greatest(asked_at, started_at, stopped_at, finished_at) <= '9999-12-30 00:00:00+00')
);

-- The edits that workers have to do.
create index pgqueue_edit_open_ix on pgqueue_edit (id) where finished_at is null and stopped_at is null;

-- A second click asks for nothing more.
create unique index pgqueue_edit_once_ix on pgqueue_edit (action, md5(filter::text), md5(parameters::text))
    where finished_at is null;
