create or replace function pgqueue_lake_forget(p_lake text) returns integer
language sql
set search_path from current
as $$
    -- Forgets the lakes with this id or location, so that retention does not wait for them.  Returns how many.  The next
    -- export to such a lake records it again.  Writes pgqueue_lake.
    with forgotten as (delete from pgqueue_lake l where l.id = p_lake or l.location = p_lake returning 1)
    select count(*)::integer from forgotten
$$;
