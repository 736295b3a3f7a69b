create or replace function pgqueue_lake_move(
    p_id text,
    p_location text,
    p_position bigint,
    p_is_done boolean default true
) returns pgqueue_lake
language sql
set search_path from current
as $$
    -- Records that the lake p_id, at p_location, has the rows of all transactions before p_position, and returns its row.
    -- p_is_done false: a run begins there, so the time of the last export stays.  Writes pgqueue_lake.
    insert into pgqueue_lake as l (id, location, position, exported_at)
    values (p_id, p_location, p_position, case when p_is_done then pgqueue_clock() end)
    on conflict (id) do update set location = excluded.location, position = excluded.position,
        exported_at = coalesce(excluded.exported_at, l.exported_at)
    returning l.*
$$;
