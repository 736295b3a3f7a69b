create or replace function pgqueue_message_readable(p_value jsonb, p_what text default null) returns jsonb
language plpgsql stable
as $$
-- Returns a JSON value, or null when its text is too large to be read back: jsonb stores 1e131071 in ten bytes, and
-- prints 131,072 digits.  Null, too, when it has bytes that are no UTF8, which a database in SQL_ASCII takes.
-- p_what: the name of a value that is to be written, for an error instead of null.  The functions that write messages
-- and ends pass it; a worker whose claim could not be read does not, and may read more.
declare
    v_max constant integer := case when p_what is null then 67108864 else 16777216 end;
    v_bytes bigint;
begin
    begin
        v_bytes := octet_length(p_value::text);
        perform convert_to(p_value::text, 'UTF8') where p_what is null;
    exception
        when program_limit_exceeded or out_of_memory or character_not_in_repertoire or untranslatable_character then
            v_bytes := 1073741824;
    end;
    if v_bytes > v_max and p_what is not null then
        raise exception '% has % bytes or more as text', p_what, v_bytes
            using errcode = 'program_limit_exceeded',
                  hint = format('It may have %s: store the data where it belongs and pass its key.', v_max);
    end if;
    return case when v_bytes <= v_max then p_value end;
end
$$;
