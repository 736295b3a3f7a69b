create or replace function pgqueue_version() returns text
language sql immutable parallel safe
as $$
    -- Returns the release whose tables and functions are installed: the last one that changed any of them.  A queue
    -- without this function is that of the first release.  Workers ask for it when they start, and so do upgrade.sql
    -- and the migrations.
    select '0.2.0'
$$;
