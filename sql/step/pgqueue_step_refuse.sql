create or replace function pgqueue_step_refuse(p_name text, p_kind text, p_status text, p_started_at timestamptz)
returns boolean
language plpgsql
set search_path from current
as $$
-- Raises the error that says why a step cannot be recorded.  pgqueue_step_record and pgqueue_step_record_many call this
-- where the table would refuse the record.
begin
    perform pgqueue_name_require(p_name, 'a step');
    if p_kind is null or p_kind not in ('step', 'atomic', 'enqueue', 'sleep', 'event', 'approval') then
        raise exception 'p_kind of the step % is %', p_name, quote_nullable(left(p_kind, 50))
            using errcode = 'invalid_parameter_value',
                  hint = 'It must be step, atomic, enqueue, sleep, event or approval.';
    elsif p_status is null or p_status not in ('began', 'failed', 'waiting', 'unasked', 'done') then
        raise exception 'p_status of the step % is %', p_name, quote_nullable(left(p_status, 50))
            using errcode = 'invalid_parameter_value', hint = 'It must be done, failed, began, waiting or unasked.';
    end if;
    raise exception 'p_started_at of the step % is %', p_name, p_started_at
        using errcode = 'invalid_parameter_value', hint = 'It must be a time of the years 1 to 9999, or null.';
end
$$;
