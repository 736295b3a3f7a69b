create or replace function pgqueue_child_outcomes(p_parent_id bigint, p_ids bigint[])
returns table (p_id bigint, p_status text, p_error_class text, p_error_message text, p_result jsonb)
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = 'force_custom_plan'
set jit = off
as $$
-- Returns how children of a message have ended, in the order of p_ids.  status is that of their last attempt;
-- waiting: it has not ended; unknown: it is no child of this message, or has left no trace.
-- Each child is found by its own id, for which the limits are.  Planned for empty tables, an index of parents, or of
-- attempts by their ids, would be read to its end for each of them: hence the conditions that these do not have.
-- A plan for a known time opens and locks the days since then alone: the server may have no room for each day.
declare
    v_since timestamptz;
    v_ended bigint[];  -- children whose end only the history may know
begin
    select min(k.created_at) - interval '1 day', array_agg(i.id) into v_since, v_ended
    from unnest(p_ids) as i (id)
    cross join lateral (
        select c.created_at from pgqueue_child c
        where c.message_id = i.id and c.parent_id is not distinct from p_parent_id and c.status is null
        limit 1
    ) as k
    where (select true from pgqueue_message m where m.id = i.id) is null;

    -- One that was enqueued while the clock was ahead may have ended before; one that was deleted has no end.
    if v_ended is not null and exists (
        select from unnest(v_ended) as i (id)
        where (
            select true from pgqueue_attempt h
            where h.message_id = i.id and h.final and h.finished_at >= v_since
            order by h.id + 0 desc
            limit 1
        ) is null
    ) then
        v_since := '-infinity';
    end if;

    return query
    select i.id,
           case when c.message_id is null then 'unknown'
                when (select true from pgqueue_message m where m.id = i.id) then 'waiting'
                else coalesce(c.status, a.status, 'unknown') end,
           coalesce(c.error_class, a.error_class), coalesce(c.error_message, a.error_message),
           coalesce(c.result, a.result)
    from unnest(p_ids) with ordinality as i (id, place)
    left join lateral (
        select k.* from pgqueue_child k
        where k.message_id = i.id and k.parent_id is not distinct from p_parent_id
        limit 1
    ) as c on true
    left join lateral (
        select h.status, h.error_class, h.error_message, h.result
        from pgqueue_attempt h
        where h.message_id = c.message_id and h.final and h.finished_at >= v_since
        order by h.id + 0 desc
        limit 1
    ) as a on c.status is null
    order by i.place;
end
$$;
