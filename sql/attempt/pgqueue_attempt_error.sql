create or replace function pgqueue_attempt_error(p_error text) returns jsonb
language plpgsql immutable strict
as $$
-- Converts what a consumer gives as an error to the form of the history, {"class": ..., "message": ..., "traceback": ...}.
-- p_error is such an object (all keys are optional) or any other text, which becomes the message; a JSON string becomes
-- its content.  Where the encoding of the database lacks a character of an object, ? stands for each escaped one.
-- The functions that end attempts call this; consumers do not.
declare
    v_text text := p_error;
    v_error jsonb;
begin
    for v_try in 1..2 loop
        begin
            v_error := v_text::jsonb;
            exit;
        exception
            -- PostgreSQL 15 does not know how to convert any character to SQL_ASCII.
            when untranslatable_character or feature_not_supported then
                v_text := regexp_replace(
                    p_error, E'(?<!\\\\)((?:\\\\\\\\)*)\\\\u(?!00[0-7])[0-9a-fA-F]{4}', E'\\1?', 'g');
            -- The text is not JSON, or is too large for jsonb.
            when data_exception or program_limit_exceeded then
                exit;
        end;
    end loop;
    if v_error = '{}' or v_error ?| array['class', 'message', 'traceback'] and jsonb_typeof(v_error) = 'object' then
        return v_error;
    end if;
    return jsonb_build_object(
        'message', case jsonb_typeof(v_error) when 'string' then v_error #>> '{}' else p_error end);
end
$$;
