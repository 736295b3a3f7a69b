create or replace function pgqueue_now(p_real timestamptz default clock_timestamp()) returns bigint
language sql volatile parallel safe
as $$
    -- Returns the time of pgqueue_clock in milliseconds since 1970.  movable_clock.sql replaces both functions.
    select floor(extract(epoch from p_real) * 1000)::bigint
$$;
