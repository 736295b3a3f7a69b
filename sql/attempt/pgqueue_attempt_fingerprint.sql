create or replace function pgqueue_attempt_fingerprint(p_day date) returns text
language sql stable
set search_path from current
set timezone = 'UTC'
as $$
    -- Returns a fingerprint of the attempts of one day (UTC), "rows:sum of ids:checksum": copies with equal
    -- fingerprints are the same.  The checksum adds up 32 bits of the md5 of each row, with all of its columns, in any
    -- order.  Times are in microseconds since 1970, and a null is \N.
    select concat_ws(':', count(*), coalesce(sum(a.id), 0),
        coalesce(sum(('x' || left(md5(convert_to(array_to_string(array[
            a.id::text, a.message_id::text, a.dequeue_at::text, a.transaction_id::text,
            (extract(epoch from a.created_at) * 1000000)::bigint::text,
            (extract(epoch from a.started_at) * 1000000)::bigint::text,
            (extract(epoch from a.finished_at) * 1000000)::bigint::text, a.attempt::text, a.max_attempts::text,
            a.priority::text, a.final::text, a.status, a.queue, a.channel, a.task, a.unique_key, a.worker,
            a.error_class, a.error_message, a.traceback, a.result::text, a.content::text, a.headers::text
        ], '/', E'\\N'), 'UTF8')), 8))::bit(32)::bigint), 0))
    from pgqueue_attempt a
    where a.finished_at >= p_day and a.finished_at < p_day + 1
$$;
