create or replace function pgqueue_event_emit(p_name text, p_payload jsonb default '{}') returns text
language plpgsql
set search_path from current
as $$
-- Emits an event, in the transaction of the caller: durable tasks that wait for it, and those that ask for it later,
-- go on with its payload.  The first emit of a name counts.  Returns emitted; repeated, if it had been emitted with this
-- payload before; or different, if it had been emitted with another one, which stays.
-- p_payload must not be null, which is what a task gets that has waited for too long, and must be what Python reads:
-- integers of up to 4300 digits, up to 1000 levels of lists and objects.
begin
    perform pgqueue_name_require(p_name, 'an event');
    if starts_with(p_name, 'pgqueue:') then
        raise exception 'the name of the event % begins with pgqueue:', quote_literal(left(p_name, 50))
            using errcode = 'invalid_parameter_value', hint = 'These names belong to the queue. Choose another one.';
    end if;
    if p_payload is null or p_payload = 'null' then
        raise exception 'the payload of the event % is null', p_name
            using errcode = 'null_value_not_allowed',
                  hint = 'A task that has waited for too long gets null. Emit another value, such as {} or true.';
    end if;
    if pgqueue_message_is_large(p_payload) then
        p_payload := pgqueue_message_readable(p_payload, 'payload');
    end if;
    if jsonb_path_exists(p_payload, 'strict $.** ? (@.type() == "number" && (@ >= 1e4300 || @ <= -1e4300))') then
        raise exception 'the payload of the event % has a number of more than 4300 digits', p_name
            using errcode = 'invalid_parameter_value', hint = 'Python does not read it. Emit it as text.';
    elsif jsonb_path_exists(p_payload, 'strict $.**{1000}') then
        raise exception 'the payload of the event % is nested more than 1000 levels deep', p_name
            using errcode = 'invalid_parameter_value', hint = 'Python does not read it. Emit less.';
    end if;
    return pgqueue_event_put(p_name, p_payload);
end
$$;
