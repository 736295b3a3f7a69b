create or replace function pgqueue_session_worker() returns text
language sql stable
as $$
    -- A worker name for a consumer that gives none: it stands for this database session and is never used again,
    -- because the start of the session is part of it.
    select 'session-' || to_hex(floor(extract(epoch from s.backend_start) * 1000000)::bigint) || '-' || pg_backend_pid()
    from pg_stat_get_activity(pg_backend_pid()) as s
$$;
