create or replace function pgqueue_approval_decide(
    p_message_id bigint,
    p_name text,
    p_approved boolean,
    p_by text,
    p_comment text default null
) returns text
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Decides an approval for which a durable task waits.  p_by is who decides; the caller has checked that this person may.
-- Returns decided; or, with nothing changed: already, if there is a decision; ended, if the message has left the queue
-- or was asked to stop; unknown, if the message has not asked for this approval.
-- Of several calls at the same time one decides.  Locks the row of the approval, and that of the message for key share;
-- writes pgqueue_approval, pgqueue_event and pgqueue_ended.
declare
    v_decided_at timestamptz;
begin
    -- 255 characters, whatever they are: users have the names that they have.
    perform pgqueue_name_require(regexp_replace(p_by, '[\u0001-\u001f\u007f]', ' ', 'g'), 'who decides', 1020);
    if p_approved is null then
        raise exception 'p_approved is null'
            using errcode = 'invalid_parameter_value', hint = 'Pass true or false.';
    elsif octet_length(p_comment) > 10000 then
        raise exception 'the comment has % bytes', octet_length(p_comment)
            using errcode = 'invalid_parameter_value', hint = 'It may have 10000. Cut it off, or keep it elsewhere and give its address.';
    end if;
    select a.decided_at into v_decided_at from pgqueue_approval a
    where a.message_id = p_message_id and a.name = p_name
    for update;
    if not found then  -- pgqueue_step_maintain deletes what is open of an ended message
        return case when exists (
                        select from pgqueue_step s
                        where s.message_id = p_message_id and s.name = p_name and s.kind = 'approval')
                     and not exists (select from pgqueue_message m where m.id = p_message_id)
                    then 'ended' else 'unknown' end;
    elsif v_decided_at is not null then
        return 'already';
    end if;
    perform from pgqueue_message m where m.id = p_message_id and m.cancel_requested_at is null for key share;
    if not found then
        return 'ended';
    end if;
    update pgqueue_approval a
    set decided_at = pgqueue_clock(), approved = p_approved, decided_by = p_by, comment = p_comment
    where a.message_id = p_message_id and a.name = p_name
    returning a.decided_at into v_decided_at;
    perform pgqueue_event_put(format('pgqueue:approval:%s:%s', p_message_id, p_name), jsonb_build_object(
        'approved', p_approved, 'by', p_by, 'comment', p_comment, 'at', v_decided_at));
    return 'decided';
end
$$;
