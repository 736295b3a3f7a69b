-- What Spark has written.  A run is a piece of work with a name: one DataFrame (its epoch is -1), or one stream, whose
-- micro-batches are the epochs.  The row of a run is written by the transaction that enqueues its messages, so the two
-- can not disagree: an epoch that is here has been enqueued, whole, and is not enqueued again, whoever tries.  One row a
-- run, however many epochs it has.
create table pgqueue_ledger (
    run_id     text primary key,
    epoch      bigint not null,
    rows       bigint not null,
    written_at timestamptz not null default now()
);

-- Where the tasks of a run put their rows until all of them have ended well: nothing of a run is to be seen in the queue
-- before.  batch is made of the run and the epoch, token is one try of one task.  Not logged, because nobody has been
-- promised anything yet: a server that crashes forgets them, and the run fails.
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
    headers      jsonb
);

create index pgqueue_staged_batch_ix on pgqueue_staged (batch);
