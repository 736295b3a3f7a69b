create or replace function pgqueue_staged_discard(
    p_batch uuid default null,
    p_days integer default 7,
    p_ledger_days integer default 365
) returns void
language sql
set search_path from current
as $$
    -- Forgets what tasks have staged as p_batch and, of runs that never ended, what is older than p_days.  Of the ledger it
    -- forgets batches (epoch -1) that are older than p_ledger_days; a stream is remembered for ever.
    delete from pgqueue_staged s where s.batch = p_batch or s.staged_at < now() - make_interval(days => p_days);
    delete from pgqueue_ledger l where l.epoch = -1 and l.written_at < now() - make_interval(days => p_ledger_days);
$$;
