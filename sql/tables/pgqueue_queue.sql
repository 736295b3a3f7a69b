-- The decisions of people about a queue.  A queue needs no row here: one that was never paused has none, or one with
-- paused_at null.  Every dequeue reads it, and it is written by hand only.
create table pgqueue_queue (
    name      text primary key,
    paused_at timestamptz,
    paused_by text,
    constraint pgqueue_queue_name_short check (octet_length(name) between 1 and 255 and name !~ '[\u0001-\u001f\u007f]'),
    constraint pgqueue_queue_paused_by_short check (octet_length(paused_by) <= 1020),
    constraint pgqueue_queue_times_of_calendar check (paused_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
);
