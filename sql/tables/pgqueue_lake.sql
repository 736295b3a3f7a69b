-- The lakes that the history is exported to, and how far each of them has come.  A row is written when a lake has been
-- committed, so it may be behind its lake and is never ahead of it.  Retention waits for what no lake has read yet.
--   id               what the lake calls itself in the log of its tables
--   location         the folder or URL, as the last run named it
--   position         the lake has the rows of all transactions before this one
--   exported_at      when a run last found that the lake has everything up to its position; null: none has ended yet
--   missed_attempts  how many attempts retention has dropped before the lake had them, in all
--   missed_from, missed_until, missed_at   the first and the last such day, and when the last one was dropped
create table pgqueue_lake (
    id              text primary key,
    location        text not null,
    position        bigint not null,
    missed_attempts bigint not null default 0,
    exported_at     timestamptz,
    missed_at       timestamptz,
    missed_from     date,
    missed_until    date,
    constraint pgqueue_lake_texts_short check (octet_length(id) between 1 and 100 and octet_length(location) <= 2000),
    constraint pgqueue_lake_counts_range check (position >= 0 and missed_attempts >= 0),
    constraint pgqueue_lake_times_of_calendar check (
        exported_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'
        and missed_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
);
