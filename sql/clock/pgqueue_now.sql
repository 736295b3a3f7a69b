create or replace function pgqueue_now(p_real timestamptz default clock_timestamp()) returns bigint
language sql volatile parallel safe
as $$
    -- pgqueue_clock in milliseconds since 1970 (see there).
    select floor(extract(epoch from p_real) * 1000)::bigint
$$;
