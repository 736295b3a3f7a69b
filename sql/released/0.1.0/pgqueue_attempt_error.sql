create or replace function pgqueue_attempt_error(p_error text) returns jsonb
language plpgsql immutable strict
as $$
-- Converts what a consumer gives as an error to the form of the history, {"class": …, "message": …, "traceback": …}.
-- p_error is such an object (all keys are optional) or any other text, which becomes the message; a JSON string becomes
-- its content.  The functions that end attempts call this; consumers do not.
declare
    v_error jsonb;
begin
    begin
        v_error := p_error::jsonb;
    exception
        -- The text is not JSON, or is too large for jsonb.
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
