-- Events: each is emitted once, with a payload, by the transaction that inserts it.  Retention deletes them.
create table pgqueue_event (
    name       text primary key,
    emitted_at timestamptz not null,
    payload    jsonb not null,
    constraint pgqueue_event_times_of_calendar check (emitted_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_event_name_short check (name <> '' and octet_length(name) <= 512)
);

create index pgqueue_event_emitted_ix on pgqueue_event using brin (emitted_at);

-- Approvals: a durable task waits for the decision of a person.  permission is the Django permission that decides who
-- may, null: whoever may run messages.  details is what the person is shown.
create table pgqueue_approval (
    message_id bigint not null,
    asked_at   timestamptz not null,
    decided_at timestamptz,
    approved   boolean,
    name       text not null,
    permission text,
    decided_by text,
    comment    text,
    details    jsonb,
    primary key (message_id, name),
    constraint pgqueue_approval_times_of_calendar check (
        asked_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'
        and decided_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_approval_decided_whole check (num_nulls(decided_at, approved, decided_by) in (0, 3)),
    constraint pgqueue_approval_comment_short check (octet_length(comment) <= 10000)
);

create index pgqueue_approval_open_ix on pgqueue_approval (asked_at, message_id) where decided_at is null;
