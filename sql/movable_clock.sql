-- For test databases: from here on each session may set the clock of its own queue (set pgqueue.now = '<epoch ms>';
-- reset pgqueue.now), so that tests move time instead of sleeping.  The owner of the queue runs it, after install.sql:
--   psql -f sql/movable_clock.sql
-- Do not run it in a database in use: any login could write times there that no worker expects.  The way back is
--   psql -f sql/clock/pgqueue_clock.sql -f sql/clock/pgqueue_now.sql
-- django_pgqueue.testing runs it in the test database of a project.
create or replace function pgqueue_clock(p_real timestamptz default clock_timestamp()) returns timestamptz
language sql volatile parallel safe
as $$
    -- Returns the time of the queue: the database's clock, unless the session has set another.
    select coalesce(
        '1970-01-01 00:00:00+00'::timestamptz
            + nullif(current_setting('pgqueue.now', true), '')::double precision * interval '1 millisecond',
        p_real)
$$;

create or replace function pgqueue_now(p_real timestamptz default clock_timestamp()) returns bigint
language sql volatile parallel safe
as $$
    -- Returns pgqueue_clock (see there) in milliseconds since 1970.
    select coalesce(
        nullif(current_setting('pgqueue.now', true), '')::bigint,
        floor(extract(epoch from p_real) * 1000)::bigint)
$$;
