create or replace function pgqueue_step_result(p_id bigint, p_created_at timestamptz, p_name text) returns jsonb
language plpgsql stable
set search_path from current
set enable_seqscan = off
set plan_cache_mode = 'force_custom_plan'
set jit = off
as $$
-- Returns the recorded result of one step.
-- A plan for a known time opens and locks the days since then alone: the server may have no room for each day.
declare
    v_since constant timestamptz := coalesce(p_created_at, '-infinity') - interval '1 day';
begin
    return (
        select s.result
        from pgqueue_step s
        where s.message_id = p_id and s.recorded_at >= v_since and s.name = p_name and s.status = 'done'
        limit 1);
end
$$;
