create or replace function pgqueue_edit_resume(p_id bigint) returns boolean
language sql
set search_path from current
as $$
    -- Lets an edit that was stopped go on where it stood.  Returns whether it does: false when it has finished, or was
    -- not stopped.  Wakes workers that rest.
    with resumed as (
        update pgqueue_edit e
        set stopped_at = null, stopped_by = null
        where e.id = p_id and e.finished_at is null and e.stopped_at is not null
        returning e.id
    ), told as (
        select pg_notify('pgqueue_' || r.id, 'edit')
        from (
            select w.id from pgqueue_worker w where w.silent_until is not null and octet_length(w.id) < 56 limit 100
        ) as r
        where exists (select from resumed)
    )
    select exists (select from resumed) and (select count(*) >= 0 from told)
$$;
