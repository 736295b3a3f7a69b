create or replace function pgqueue_binding_compile(
    p_kind text,
    p_pattern text,
    out p_likeness text,
    out p_regex text
)
language plpgsql
as $$
-- Checks whether p_pattern can be bound, and raises an error that names it when it cannot.  Returns what routing keys
-- are compared with (see pgqueue_binding).
--   topic   words between dots, as in AMQP: * stands for one word, # for any number of words, also none
--   regex   a regular expression of PostgreSQL, which matches anywhere in the routing key: ^ and $ are yours to write
-- A pattern must not slow publishers down, so it has at most 255 bytes and no back-reference: without one a match reads
-- the key once.  Building the matcher could still take long.  So this function builds it and refuses a pattern that
-- takes more than 250 ms; and {m,n} may ask for 1,000 characters at most, which keeps that trial short.
declare
    v_words text[] := string_to_array(p_pattern, '.');
    v_word text;
    v_most integer;
    v_trial integer;
    v_began timestamptz;
    v_unknown text;
    v_ms numeric;
begin
    if p_pattern is null or octet_length(p_pattern) > 255 then
        raise exception 'the pattern "%" has % bytes, and may have 255', p_pattern, octet_length(p_pattern)
            using errcode = 'invalid_parameter_value';
    elsif p_kind = 'topic' then
        p_likeness := '.';
        p_regex := '^\.';
        foreach v_word in array v_words loop
            if v_word ~ '[*#]' and v_word not in ('*', '#') then
                raise exception 'the topic "%" has the word "%"', p_pattern, v_word
                    using errcode = 'invalid_parameter_value',
                          hint = '* and # match whole words between dots. For parts of words, use a regular expression.';
            end if;
            p_likeness := p_likeness || case v_word
                when '#' then '%'
                when '*' then '%.'
                else regexp_replace(v_word, '([\\%_])', '\\\1', 'g') || '.'
            end;
            p_regex := p_regex || case v_word
                when '#' then '([^.]*\.)*'
                when '*' then '[^.]*\.'
                else regexp_replace(v_word, '(\W)', '\\\1', 'g') || '\.'
            end;
        end loop;
        p_regex := p_regex || '$';
        -- "like" alone decides patterns of whole words, with or without a # at the end.
        if '*' <> all (v_words) and '#' <> all (v_words[:cardinality(v_words) - 1]) then
            p_regex := null;
        end if;
    elsif p_kind = 'regex' then
        p_likeness := '%';
        p_regex := p_pattern;
        -- An escaped backslash does not begin a back-reference.
        if replace(p_pattern, '\\', '') ~ '\\[1-9]' then
            raise exception 'the regular expression "%" has a back-reference', p_pattern
                using errcode = 'invalid_regular_expression', hint = 'It could take for ever to match. Write the pattern without it.';
        end if;
        select coalesce(max(greatest(f.bound[1]::integer, nullif(f.bound[2], '')::integer)), 1) into v_most
        from regexp_matches(p_pattern, '\{(\d{1,9})(?:,(\d{0,9}))?\\?\}', 'g') as f (bound);
        if v_most::bigint * length(p_pattern) > 1000 then
            raise exception 'the regular expression "%" repeats up to % times', p_pattern, v_most
                using errcode = 'invalid_regular_expression',
                      hint = 'The largest bound in {m,n}, multiplied by the length of the pattern, may be at most 1,000.';
        end if;
        for v_trial in 1..3 loop  -- the machine may be slow for other reasons
            v_began := clock_timestamp();
            begin
                perform '' ~ p_pattern;
                -- The session caches the matchers that it has built, so the measured one must be new to it.
                v_unknown := p_pattern || '|' || v_began;
                perform k.routing_key ~ v_unknown
                from (values (repeat('a', 255)), (repeat('0f.', 85))) as k (routing_key);
            exception when invalid_regular_expression then
                raise exception 'the regular expression "%" is not valid: %', p_pattern, sqlerrm
                    using errcode = 'invalid_regular_expression';
            end;
            v_ms := extract(epoch from clock_timestamp() - v_began) * 1000;
            exit when v_ms not between 250 and 1000;
        end loop;
        if v_ms > 250 then
            raise exception 'the regular expression "%" takes % ms', p_pattern, round(v_ms)
                using errcode = 'invalid_regular_expression', hint = 'It may take at most 250 ms. Use fewer ? and {m,n}.';
        end if;
    else
        raise exception 'unknown kind of pattern "%"', p_kind
            using errcode = 'invalid_parameter_value', hint = 'Use topic or regex.';
    end if;
end
$$;
