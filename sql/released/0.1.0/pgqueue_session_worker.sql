create or replace function pgqueue_session_worker() returns text
language sql stable
as $$
    -- Returns a worker name for a consumer that gives none: it stands for this database session and is never used
    -- again, because it contains the start time of the session.
    select 'session-' || to_hex(floor(extract(epoch from s.backend_start) * 1000000)::bigint) || '-' || pg_backend_pid()
    from pg_stat_get_activity(pg_backend_pid()) as s
$$;
