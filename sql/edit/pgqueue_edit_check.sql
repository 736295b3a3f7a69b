create or replace function pgqueue_edit_check(p_action text, p_filter jsonb, p_parameters jsonb default null) returns void
language plpgsql
set search_path from current
as $$
-- Raises an error unless this is an edit that pgqueue_edit_step understands: a key that it does not know would let it
-- change more than was meant.  Times are epoch ms.  p_parameters null: only the filter is checked.  Reads no table.
declare
    v_texts text[] := array['queue', 'task', 'task_contains', 'channel', 'status', 'error_group'];
    v_numbers text[] := array['priority_from', 'priority_until', 'created_from', 'created_until'];
    v_statuses text[];
    v_wanted text;
    v_key text;
    v_value jsonb;
    v_bad text;
begin
    v_wanted := case p_action when 'postpone' then 'run_at' when 'move' then 'queue' when 'prioritise' then 'priority' end;
    if p_action in ('run_now', 'postpone', 'cancel', 'delete', 'move', 'prioritise') then
        v_texts := v_texts || array['error_contains'];
        v_numbers := v_numbers || array['run_at_from', 'run_at_until'];
        v_statuses := array['scheduled', 'ready', 'running', 'expired'];
    elsif p_action = 'enqueue_again' then
        v_texts := v_texts || array['error', 'error_class', 'error_contains'];
        v_numbers := v_numbers || array['finished_from', 'finished_until'];
        v_statuses := array['succeeded', 'failed', 'cancelled', 'lost'];
    else
        raise exception 'p_action is %', coalesce(quote_literal(p_action), 'null')
            using errcode = 'invalid_parameter_value',
                  hint = 'It is run_now, postpone, cancel, delete, move, prioritise or enqueue_again.';
    end if;
    if jsonb_typeof(p_filter) is distinct from 'object' or jsonb_typeof(p_parameters) <> 'object' then
        raise exception 'p_filter or p_parameters is no JSON object'
            using errcode = 'invalid_parameter_value', hint = 'Everything is {}.';
    end if;

    for v_key, v_value in select * from jsonb_each(p_filter) loop
        v_bad := case
            when v_key = 'raw' and jsonb_typeof(v_value) <> 'boolean' then 'must be true or false'
            when v_key = 'argument' and jsonb_typeof(v_value) not in ('string', 'number', 'boolean')
                then 'must be a text, a number, or true or false'
            when v_key in ('raw', 'argument') then null
            when v_key = any (v_texts) and jsonb_typeof(v_value) <> 'string' then 'must be a text'
            when v_key = 'status' and not v_value #>> '{}' = any (v_statuses)
                then 'is one of ' || array_to_string(v_statuses, ', ')
            when v_key = any (v_texts) then null
            when v_key = any (v_numbers) and (jsonb_typeof(v_value) <> 'number' or v_value::text !~ '^-?[0-9]{1,18}$')
                then 'must be a whole number'
            when v_key = any (v_numbers) then null
            else 'is no part of a filter for ' || p_action end;
        if v_bad is not null then
            raise exception 'p_filter: % %', quote_literal(left(v_key, 100)), v_bad
                using errcode = 'invalid_parameter_value',
                      hint = 'Known: raw, argument, ' || array_to_string(v_texts || v_numbers, ', ') || '.';
        end if;
    end loop;

    if p_parameters is null then
        return;
    end if;
    select k into v_key from jsonb_object_keys(p_parameters) as k where k is distinct from v_wanted limit 1;
    if found or (v_wanted is not null and not p_parameters ? v_wanted) then
        raise exception 'p_parameters of % must be %', p_action, coalesce('{"' || v_wanted || '": ...}', '{}')
            using errcode = 'invalid_parameter_value';
    end if;
    v_value := p_parameters -> v_wanted;
    if p_action = 'move' and (jsonb_typeof(v_value) <> 'string' or octet_length(v_value #>> '{}') not between 1 and 255
                              or v_value #>> '{}' ~ '[\u0001-\u001f\u007f]')
       or p_action = 'postpone' and v_value::text !~ '^-?[0-9]{1,15}$'
       or p_action = 'prioritise' and (v_value::text !~ '^-?[0-9]{1,3}$' or v_value::text::integer not between -100 and 100)
    then
        raise exception 'p_parameters: % is %', v_wanted, left(v_value::text, 100)
            using errcode = 'invalid_parameter_value',
                  hint = 'A queue is a name of up to 255 bytes without control characters, a priority a whole number from -100 to 100, and run_at epoch ms.';
    end if;
end
$$;
