create or replace function pgqueue_message_parked_calls(
    p_queue text,
    p_task text,
    p_after_parked_at bigint default -9223372036854775808,
    p_after_id bigint default -9223372036854775808,
    p_limit integer default 500
) returns table (p_id bigint, p_parked_at bigint, p_args integer, p_kwargs text[], p_version text, p_unknown boolean)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
    -- Returns with what arguments a parked task is to be called, in the order of (parked_at, id), up to p_limit, from the
    -- one after (p_after_parked_at, p_after_id) on: how many have no name, and the names of the others, of which the
    -- first 1000 are enough, which version has enqueued it, and whether a worker could not take it.  The former two are
    -- null where the content is no call.
    -- A worker that knows the task, but could not take the arguments of some message, or leaves some to workers of a
    -- later version, reads here which ones are its own, and unparks these.  Reads pgqueue_message along pgqueue_message_parked_ix.
    select m.id, m.parked_at,
           case when c.is_call then jsonb_array_length(m.content -> 'args') end,
           case when c.is_call then array(select k from jsonb_object_keys(m.content -> 'kwargs') as k limit 1000) end,
           m.version, m.unknown_since is not null
    from (
        select m.id, m.parked_at, m.content, m.version, m.unknown_since from pgqueue_message m
        where m.parked_at is not null and m.queue = p_queue and m.task = p_task
          and (m.parked_at, m.id) > (p_after_parked_at, p_after_id)
        order by m.queue, m.task, m.parked_at, m.id
        limit p_limit
    ) as m
    cross join lateral (
        select coalesce(jsonb_typeof(m.content -> 'args') = 'array' and jsonb_typeof(m.content -> 'kwargs') = 'object', false)
    ) as c (is_call)
    order by m.parked_at, m.id
$$;
