create or replace function pgqueue_now(p_real timestamptz default clock_timestamp()) returns bigint
language sql volatile parallel safe
as $$
    -- Returns pgqueue_clock (see there) in milliseconds since 1970.
    select floor(extract(epoch from p_real) * 1000)::bigint
$$;
