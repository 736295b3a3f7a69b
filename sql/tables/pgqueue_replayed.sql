-- The messages of the history that a replay has enqueued again, each once under the name of the replay.  The transaction
-- that enqueues them writes the rows, so the two cannot disagree.  Replays delete rows that are older than a year.
create table pgqueue_replayed (
    replay      text not null,
    message_id  bigint not null,
    replayed_at timestamptz not null default now(),
    primary key (replay, message_id),
    constraint pgqueue_replayed_name_short check (octet_length(replay) between 1 and 200),
    constraint pgqueue_replayed_times_of_calendar check (
        replayed_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
);
