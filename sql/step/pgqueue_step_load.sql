create or replace function pgqueue_step_load(p_id bigint, p_created_at timestamptz, p_max_bytes integer default 10000)
returns table (
    p_name text, p_kind text, p_status text, p_attempt integer, p_until bigint, p_is_large boolean, p_result jsonb)
language plpgsql stable
set search_path from current
set enable_seqscan = off
set plan_cache_mode = 'force_custom_plan'
set jit = off
as $$
-- Returns the records of the steps of one message, the latest last, whatever the clock has done between two attempts.
-- p_created_at is that of the message; null: reads the days of all messages.
-- is_large: the stored result has more than p_max_bytes, and is left out; pgqueue_step_result returns it.
-- A plan for a known time opens and locks the days since then alone: the server may have no room for each day.
declare
    v_since constant timestamptz := coalesce(p_created_at, '-infinity') - interval '1 day';
begin
    return query
    select s.name, s.kind, s.status, s.attempt, s.until, l.is_large, case when not l.is_large then s.result end
    from pgqueue_step s
    cross join lateral (select coalesce(pg_column_size(s.result), 0) > p_max_bytes as is_large) as l
    where s.message_id = p_id and s.recorded_at >= v_since
    order by s.attempt, s.finished_at;
end
$$;
