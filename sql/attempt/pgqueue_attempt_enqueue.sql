create or replace function pgqueue_attempt_enqueue(p_attempt_ids bigint[], p_version text default null) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
-- Enqueues messages of the history again, as new messages that are ready at once and have all their attempts left.
-- p_attempt_ids are ids of final rows of pgqueue_attempt; other ids are skipped, because their message is still in the
-- queue.  p_version is that of the deploy that calls, as in pgqueue_message_create.  The headers have the id of the first message as "enqueued_again_from".
-- A message that wanted the results of others (pgqueue_message_create_after) has them again.
-- Returns the ids of the new messages.  Writes pgqueue_message and pgqueue_child; wakes one sleeping worker for each queue.
declare
    v_attempt pgqueue_attempt;
    v_from_step boolean;
    v_max_attempts integer;
    v_id bigint;
begin
    for v_attempt in
        select a.* from pgqueue_attempt a
        where a.id = any (p_attempt_ids) and a.final
        order by a.message_id
    loop
        v_from_step := v_attempt.headers ->> 'enqueued_from_step' is not null;
        -- Without the attempts that deferring, suspending, or losing a task, or pgqueue_step_enqueue, had added.
        v_max_attempts := v_attempt.max_attempts - v_from_step::integer - (
            select count(*)::integer from pgqueue_attempt d
            where d.message_id = v_attempt.message_id
              and (d.status in ('deferred', 'suspended') or d.status = 'lost' and v_attempt.task is not null));
        v_id := pgqueue_message_create(
            v_attempt.content, v_attempt.queue, v_attempt.task, v_attempt.priority, null, v_attempt.channel,
            coalesce(case when v_from_step then v_attempt.headers - 'enqueued_from_step' else v_attempt.headers end, '{}')
                || jsonb_build_object('enqueued_again_from', v_attempt.message_id),
            case when v_max_attempts < 0 then 0 else v_max_attempts end,
            p_version => case when v_attempt.task is not null then p_version end);
        insert into pgqueue_child (
            message_id, parent_id, created_at, cancels, status, error_class, error_message, result, by_after)
        select c.message_id, v_id, c.created_at, c.cancels, c.status, c.error_class, c.error_message, c.result, true
        from pgqueue_child c
        where c.parent_id = v_attempt.message_id and c.by_after and v_id is not null;
        return next v_id;
    end loop;
end
$$;
