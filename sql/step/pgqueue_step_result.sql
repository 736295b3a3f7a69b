create or replace function pgqueue_step_result(p_id bigint, p_created_at timestamptz, p_name text) returns jsonb
language sql stable
set search_path from current
set enable_seqscan = off
set jit = off
as $$
    -- Returns the recorded result of one step.
    select s.result
    from pgqueue_step s
    where s.message_id = p_id and s.recorded_at >= coalesce(p_created_at, '-infinity') - interval '1 day' and s.name = p_name
      and s.status = 'done'
    limit 1
$$;
