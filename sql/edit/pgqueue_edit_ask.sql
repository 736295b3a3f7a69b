create or replace function pgqueue_edit_ask(
    p_action text,
    p_filter jsonb,
    p_parameters jsonb default '{}',
    p_asked_by text default session_user
) returns bigint
language plpgsql
set search_path from current
as $$
-- Asks for an edit, which workers begin within some seconds (pgqueue_edit_step), and returns its id.  It means what is
-- there now, and nothing that comes later.  Whoever may call this may do all of it: nobody is asked again.
-- An edit that is the same as one that has not finished is that one, which goes on, and means what has come since, too.
-- The same enqueue_again goes on where the last one ended: no message is enqueued again by both.  Deletes edits that
-- ended a year ago.
-- Reads the ends of the table's ids; writes pgqueue_edit; wakes workers that rest.
declare
    v_id bigint;
    v_first bigint;
    v_last bigint;
begin
    perform pgqueue_edit_check(p_action, p_filter, coalesce(p_parameters, '{}'));
    delete from pgqueue_edit e where e.finished_at < pgqueue_clock() - interval '1 year';
    if p_action = 'enqueue_again' then
        v_first := (select a.id from pgqueue_attempt a order by a.id limit 1);
        v_last := (select a.id from pgqueue_attempt a order by a.id desc limit 1);
        v_first := greatest(v_first, (
            select max(e.position) + 1 from pgqueue_edit e
            where e.action = p_action and e.filter = p_filter and e.finished_at is not null));
    else
        v_first := (select m.id from pgqueue_message m order by m.id limit 1);
        v_last := (select m.id from pgqueue_message m order by m.id desc limit 1);
    end if;
    v_first := coalesce(v_first, 1);
    v_last := greatest(v_last, v_first - 1);
    for v_round in 1 .. 1000 loop
        insert into pgqueue_edit (action, filter, parameters, asked_by, first_id, last_id, position)
        values (p_action, p_filter, coalesce(p_parameters, '{}'), left(p_asked_by, 63), v_first, v_last, v_first - 1)
        on conflict (action, md5(filter::text), md5(parameters::text)) where finished_at is null do nothing
        returning id into v_id;
        exit when v_id is not null;
        update pgqueue_edit e set stopped_at = null, stopped_by = null, last_id = greatest(e.last_id, v_last)
        where e.action = p_action and e.filter = p_filter and e.parameters = coalesce(p_parameters, '{}') and e.finished_at is null
        returning e.id into v_id;
        exit when v_id is not null;  -- or it has finished since the insert met it
    end loop;
    if v_id is null then
        raise exception 'row-level security hides the same edit, which is not finished'
            using errcode = 'insufficient_privilege', hint = 'Let the role bypass row-level security of pgqueue_edit.';
    end if;
    perform pg_notify('pgqueue_' || r.id, 'edit')
    from (
        select w.id from pgqueue_worker w where w.silent_until is not null and octet_length(w.id) < 56 limit 100
    ) as r;
    return v_id;
end
$$;
