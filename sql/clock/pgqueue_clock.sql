create or replace function pgqueue_clock(p_real timestamptz default clock_timestamp()) returns timestamptz
language sql volatile parallel safe
as $$
    -- Returns the time of the queue: the database's clock, which is the only clock there is.
    -- p_real is the real time that is meant: clock_timestamp(), or now() for the time of the transaction.
    -- No session can move it, except where the owner of the queue has run movable_clock.sql, for tests.
    select p_real
$$;
