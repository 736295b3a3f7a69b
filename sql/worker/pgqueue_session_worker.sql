create or replace function pgqueue_session_worker() returns text
language sql stable
as $$
    -- Returns a worker name for a consumer that gives none: it stands for this database session and is never used
    -- again, because it contains the start time of the session.  A role of "set role" may not see that time: the
    -- session keeps the name that it has had, in the setting pgqueue.session, or gets one of the present time.
    select coalesce(
        nullif(current_setting('pgqueue.session', true), ''),
        set_config(
            'pgqueue.session',
            'session-' || to_hex(floor(extract(epoch from coalesce(s.backend_start, clock_timestamp())) * 1000000)::bigint)
                || '-' || pg_backend_pid(),
            false))
    from (select) as one
    left join pg_stat_get_activity(pg_backend_pid()) as s on true
$$;
