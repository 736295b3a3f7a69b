-- The history: one row for each finished attempt, appended by the statement that ends the attempt, never updated.
-- Partitioned by the day (UTC) of finished_at; retention drops partitions and never deletes rows
-- (pgqueue_attempt_maintain).  Rows of a day without a partition go to pgqueue_attempt_default, so none is refused.
--
-- status says how the attempt ended:
--   succeeded   done
--   deferred    put back for later by its consumer, without an error
--   suspended   a durable task waits for a time, an event or other messages
--   retried     put back for later after an error
--   failed      given up
--   cancelled   withdrawn before it ran
--   lost        its lock ran out and was taken over
-- final: the message left the queue with this attempt.  Only final rows have content: until then it is in the message.
-- transaction_id is the transaction that wrote the row.  A reader that follows the history reads up to the oldest
-- transaction that still runs (pg_snapshot_xmin(pg_current_snapshot())): below it no row can appear any more.  An id
-- or a time gives no such limit, because rows appear when they are committed, in another order.
create sequence pgqueue_attempt_id_seq as bigint;

create table pgqueue_attempt (
    id             bigint not null default nextval('pgqueue_attempt_id_seq'),
    message_id     bigint not null,
    dequeue_at     bigint not null,
    -- bigint and not xid8, which has no block range index, and no cast to bigint but through text.
    transaction_id bigint not null default pg_current_xact_id()::text::bigint,
    created_at     timestamptz not null,
    started_at     timestamptz,
    finished_at    timestamptz not null,
    attempt        integer not null,
    max_attempts   integer,
    priority       smallint not null,
    final          boolean not null,
    status         text not null,
    queue          text not null,
    channel        text,
    task           text,
    unique_key     text,
    worker         text,
    error_class    text,
    error_message  text,
    traceback      text,
    result         jsonb,
    content        jsonb,
    headers        jsonb,
    -- The same limits as in pgqueue_message.  The class of an error may be 765 bytes longer.
    constraint pgqueue_attempt_names_short check (
        greatest(octet_length(queue), octet_length(channel), octet_length(task), octet_length(worker),
                 octet_length(unique_key) - 2045, octet_length(error_class) - 765) <= 255),
    constraint pgqueue_attempt_times_of_calendar check (
        least(created_at, started_at, finished_at) >= '0001-01-02 00:00:00+00'
        and greatest(created_at, started_at, finished_at) <= '9999-12-30 00:00:00+00'),
    constraint pgqueue_attempt_status_known
        check (status in ('succeeded', 'deferred', 'retried', 'failed', 'cancelled', 'lost', 'suspended'))
) partition by range (finished_at);

alter sequence pgqueue_attempt_id_seq owned by pgqueue_attempt.id;

create index pgqueue_attempt_id_ix on pgqueue_attempt (id);

create index pgqueue_attempt_message_ix on pgqueue_attempt (message_id);

-- Errors are few, and people look for them among many rows: successful attempts do not pay for this index.
create index pgqueue_attempt_error_ix on pgqueue_attempt (id) where status in ('failed', 'retried', 'lost');

-- Rows arrive in the order of these columns, so a block range index is as good as a tree and costs next to nothing.
create index pgqueue_attempt_finished_ix on pgqueue_attempt using brin (finished_at, transaction_id)
    with (pages_per_range = 32, autosummarize = on);

create table pgqueue_attempt_default partition of pgqueue_attempt default;

-- Rows leave it for partitions.  Without a primary key PostgreSQL refuses that where a publication is for all tables, and
-- where it publishes partitions as their table, the copy refuses it.
alter table pgqueue_attempt replica identity full;
alter table pgqueue_attempt_default replica identity full;
