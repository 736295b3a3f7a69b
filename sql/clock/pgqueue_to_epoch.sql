create or replace function pgqueue_to_epoch(p_at timestamptz) returns bigint
language sql immutable strict parallel safe
as $$
    -- Returns milliseconds since 1970-01-01 00:00 UTC, rounded down.
    -- extract(epoch) already contains the fraction of the second: adding extract(millisecond), as is often seen,
    -- counts the seconds twice.
    select floor(extract(epoch from p_at) * 1000)::bigint
$$;
