-- The record of what Spark has written.  A run is a named piece of work: one DataFrame (its epoch is -1), or one
-- stream, whose micro-batches are the epochs.  The transaction that enqueues the messages of a run writes its row, so
-- the two cannot disagree: an epoch in this table has been enqueued as a whole, and no caller enqueues it again.  A
-- run has one row, however many epochs it has.
create table pgqueue_ledger (
    run_id     text primary key,
    epoch      bigint not null,
    rows       bigint not null,
    written_at timestamptz not null default now(),
    constraint pgqueue_ledger_run_id_short check (octet_length(run_id) between 1 and 255 and run_id !~ '[\u0001-\u001f\u007f]'),
    constraint pgqueue_ledger_times_of_calendar check (written_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
);

-- Rows of the tasks of a run, until all of the tasks have succeeded: before that the queue shows none of them.  batch
-- is made from the run and the epoch; token is one try of one task.  Unlogged, because nothing is promised yet: a
-- server crash loses the rows, and the run fails.
create unlogged table pgqueue_staged (
    batch        uuid not null,
    token        uuid not null,
    staged_at    timestamptz not null default now(),
    dequeue_at   bigint,
    max_attempts integer,
    priority     smallint not null,
    queue        text not null,
    channel      text,
    task         text,
    unique_key   text,
    content      jsonb not null,
    headers      jsonb,
    constraint pgqueue_staged_times_of_calendar check (staged_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_staged_names_short check (
        octet_length(queue) between 1 and 255 and octet_length(channel) <= 255 and octet_length(task) <= 255
        and octet_length(unique_key) <= 2300)
);

create index pgqueue_staged_batch_ix on pgqueue_staged (batch);
