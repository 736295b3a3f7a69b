create or replace function pgqueue_staged_discard(
    p_batch uuid default null,
    p_days integer default 7,
    p_ledger_days integer default 365
) returns void
language sql
set search_path from current
as $$
    -- Deletes the rows that tasks have staged as p_batch and, of runs that never ended, rows older than p_days.  Of the
    -- ledger it deletes batches (epoch -1) older than p_ledger_days; streams are never deleted.
    delete from pgqueue_staged s where s.batch = p_batch or s.staged_at < now() - make_interval(days => p_days);
    delete from pgqueue_ledger l where l.epoch = -1 and l.written_at < now() - make_interval(days => p_ledger_days);
$$;
