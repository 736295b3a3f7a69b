create or replace function pgqueue_from_epoch(p_ms bigint) returns timestamptz
language sql immutable strict parallel safe
as $$
    -- Returns the time p_ms milliseconds after 1970-01-01 00:00 UTC.  Times that PostgreSQL cannot represent
    -- (dequeue_at may be any bigint) become -infinity and infinity.
    -- It adds 24 hours, not one day: a day has 23 or 25 hours where the session's time zone changes its clocks.  It
    -- counts from 2000, the zero of timestamptz: from 1970 the last decades need more than the longest interval.
    select case
        when p_ms < -210866803200000 then '-infinity'::timestamptz
        when p_ms > 9224318015999999 then 'infinity'::timestamptz
        else '2000-01-01 00:00:00+00'::timestamptz
            + ((p_ms - 946684800000) / 86400000) * interval '24 hours'
            + ((p_ms - 946684800000) % 86400000) * interval '1 millisecond'
    end
$$;
