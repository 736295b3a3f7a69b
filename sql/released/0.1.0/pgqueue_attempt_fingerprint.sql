create or replace function pgqueue_attempt_fingerprint(p_day date) returns text
language sql stable
set search_path from current
set timezone = 'UTC'
as $$
    -- Returns a fingerprint of the attempts of one day (UTC), "rows:sum of ids:checksum": copies with equal
    -- fingerprints are the same.  The checksum adds up 32 bits of the md5 of each row, in any order.
    select concat_ws(':', count(*), coalesce(sum(a.id), 0),
        coalesce(sum(('x' || left(md5(concat_ws('/',
            a.id, a.message_id, a.dequeue_at, (extract(epoch from a.finished_at) * 1000000)::bigint, a.attempt,
            a.max_attempts, a.priority, a.final::text, a.status, a.queue, a.channel, a.task, a.unique_key, a.worker,
            a.error_class, a.error_message, a.traceback, a.result, a.content, a.headers)), 8))::bit(32)::bigint), 0))
    from pgqueue_attempt a
    where a.finished_at >= p_day and a.finished_at < p_day + 1
$$;
