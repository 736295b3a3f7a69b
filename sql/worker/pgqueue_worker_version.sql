create or replace function pgqueue_worker_version(p_id text, p_version text) returns void
language sql
set search_path from current
as $$
    -- Records the version of the deploy that a worker runs.  While workers live that run the version of a message, or
    -- a later one (pgqueue_version_key), workers of earlier versions leave it to them.
    -- A worker calls this after pgqueue_worker_seen.  Writes its row only where it changes.
    update pgqueue_worker w set version = p_version
    where w.id = p_id and w.version is distinct from p_version
$$;
