create or replace function pgqueue_message_is_large(p_value jsonb) returns boolean
language sql stable
as $$
    -- Returns whether it is worth the while to look at the text of a JSON value (pgqueue_message_readable).
    -- A number takes 16 bytes or more, so that 2000 bytes of jsonb have at most 16.4 MB of text.  The size of a compressed
    -- value says nothing.
    -- The planner puts this test into the statement that calls it, so that a small message costs no call.
    select pg_column_size(p_value) > 2000 or pg_column_compression(p_value) is not null
$$;
