create or replace function pgqueue_rollup_prune(p_days integer default 31) returns integer
language sql
set search_path from current
as $$
    -- Deletes the figures that are older than p_days, and those of five minutes that are older than six hours.  Returns
    -- how many; at most 5000 a call.  Any number of workers may call it.
    with old as (
        select r.id from pgqueue_rollup r
        where (r.minutes = 60 and r.starts_at < pgqueue_clock() - make_interval(days => p_days))
           or (r.minutes = 5 and r.starts_at < pgqueue_clock() - interval '6 hours')
        limit 5000
        for update skip locked
    ),
    gone as (
        delete from pgqueue_rollup r using old where r.id = old.id returning 1
    )
    select count(*)::integer from gone
$$;
