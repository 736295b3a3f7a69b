-- What somebody has decided about a queue.  A queue needs no row here: one that nobody paused has none, or one with
-- paused_at null.  Read by every dequeue, written by hand only.
create table pgqueue_queue (
    name      text primary key,
    paused_at timestamptz,
    paused_by text
);
