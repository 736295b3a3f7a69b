create or replace function pgqueue_channel_prune(p_name text default null) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Removes channels without messages: released channels, and channels on which no limits were set.  p_name: this one
-- only; null: all.  Returns how many were removed.  Workers call it once an hour.
-- Locks rows of pgqueue_channel and pgqueue_lane without waiting for any.
declare
    v_name text;
    v_count integer := 0;
begin
    for v_name in
        select c.name from pgqueue_channel c
        where (p_name is null or c.name = p_name)
          and (c.released_at is not null or c.set_at is null) and c.running = 0
        order by c.name
        limit 10000
        for update skip locked
    loop
        continue when exists (select from pgqueue_message m where m.channel = v_name and m.unlock_at is null);
        continue when exists (select from pgqueue_arrival a where a.channel = v_name);
        -- A transaction that has locked a lane is about to write it.
        continue when (select count(*) from pgqueue_lane l where l.channel = v_name) > (
            select count(*) from (select from pgqueue_lane l where l.channel = v_name for update skip locked) as free);
        delete from pgqueue_lane l where l.channel = v_name;
        delete from pgqueue_channel c where c.name = v_name;
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;
