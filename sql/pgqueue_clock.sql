create or replace function pgqueue_clock(p_real timestamptz default clock_timestamp()) returns timestamptz
language sql volatile parallel safe
as $$
    -- What time it is for the queue: the database's clock, which is the only clock there is, unless the session has
    -- set another (set pgqueue.now = '<epoch ms>'), so that tests move time instead of sleeping.
    -- p_real is the real time that is meant: clock_timestamp(), or now() for the time of the transaction.
    select coalesce(
        '1970-01-01 00:00:00+00'::timestamptz
            + nullif(current_setting('pgqueue.now', true), '')::double precision * interval '1 millisecond',
        p_real)
$$;
