create or replace function pgqueue_attempt_error(p_error text) returns jsonb
language plpgsql immutable strict
as $$
-- An error as the history keeps it, {"class": …, "message": …, "traceback": …}, from whatever a consumer says: such an
-- object (all keys are optional), or any other text, which is the message; of a JSON string what it says.  For the
-- functions that end attempts; not for consumers.
declare
    v_error jsonb;
begin
    begin
        v_error := p_error::jsonb;
    exception
        -- No JSON, or more of it than jsonb can hold.
        when data_exception or program_limit_exceeded then
            null;
    end;
    if v_error = '{}' or v_error ?| array['class', 'message', 'traceback'] and jsonb_typeof(v_error) = 'object' then
        return v_error;
    end if;
    return jsonb_build_object(
        'message', case jsonb_typeof(v_error) when 'string' then v_error #>> '{}' else p_error end);
end
$$;
