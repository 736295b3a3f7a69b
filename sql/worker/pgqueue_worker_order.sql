create or replace function pgqueue_worker_order(
    p_id text,
    p_order text,
    p_slots integer default null,
    p_by text default null
) returns boolean
language plpgsql
set search_path from current
as $$
-- Gives an order to a worker: 'pause' (it claims nothing until 'resume'), 'resume', 'stop' (it ends what runs, within its
-- grace, and leaves), or 'slots' (it runs p_slots jobs at a time).  p_by is the person who gives it.
-- Returns false if no such worker lives: nothing was ordered.  Consumers of raw messages take no orders.
-- The worker reads the order in its row, when it refreshes it: at once after the notification, or within seconds.
-- The order stands in the row until the next one; a new row, of a worker that was started again, has none.
begin
    if p_order is null or p_order not in ('pause', 'resume', 'stop', 'slots')
        or (p_order = 'slots') <> (p_slots is not null) or p_slots not between 1 and 1000 then
        raise exception 'p_order is %, and p_slots is %', p_order, p_slots
            using errcode = 'invalid_parameter_value',
                  hint = 'p_order is pause, resume or stop without p_slots, or slots with p_slots from 1 to 1000.';
    end if;
    update pgqueue_worker w
    set ordered = case p_order when 'slots' then w.ordered when 'resume' then null else p_order end,
        ordered_slots = coalesce(p_slots, w.ordered_slots),
        ordered_at = pgqueue_clock(), ordered_by = left(p_by, 255)
    where w.id = p_id and w.tasks
      and (w.seen_at > pgqueue_clock() - interval '1 minute' or w.silent_until > pgqueue_now());
    if not found then
        return false;
    end if;
    perform pg_notify('pgqueue_' || p_id, '');
    return true;
end
$$;
