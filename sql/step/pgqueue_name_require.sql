create or replace function pgqueue_name_require(p_name text, p_what text, p_max integer default 255) returns void
language plpgsql stable
as $$
-- Raises an error unless p_name can be the name of p_what: 1 to p_max bytes without control characters.  The functions of
-- durable tasks call this.  pgqueue_step_record, pgqueue_step_record_many and pgqueue_approval_decide have the same pattern
-- of control characters: a function that all call would be planned anew at each record of a step.
begin
    if p_name is null or p_name = '' or octet_length(p_name) > p_max then
        raise exception 'the name of % is %, of % bytes', p_what, quote_nullable(left(p_name, 50)), coalesce(octet_length(p_name), 0)
            using errcode = 'invalid_parameter_value', hint = format('It must have 1 to %s bytes.', p_max);
    elsif p_name ~ '[\u0001-\u001f\u007f]' then
        raise exception 'the name of % is %, with a control character', p_what, to_json(left(p_name, 50))
            using errcode = 'invalid_parameter_value', hint = 'Leave it out: names stand in lines of logs and of pages.';
    end if;
end
$$;
