create or replace function pgqueue_version_key(p_version text) returns text
language sql immutable
as $$
    -- Returns a text that sorts, by the values of its characters (collate "C"), as versions of a deploy do: runs of
    -- digits are compared as numbers, and everything else character by character.  So '2024.9.1' comes before
    -- '2024.10.1', and '2024.9' before both.
    select string_agg(case when r.run[1] ~ '^[0-9]' then lpad(ltrim(r.run[1], '0'), 100, '0') else r.run[1] end, '' order by r.place)
    from regexp_matches(left(p_version, 100), '[0-9]+|[^0-9]+', 'g') with ordinality as r (run, place)
$$;
