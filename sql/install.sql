-- Installs the queue into the first schema of the search_path, without Django:
--   psql -f sql/install.sql
-- All or nothing.  Where there is a queue already, this does what upgrade.sql does.
-- This is the only list of the parts of a queue, and the migrations use its order: the tables, then the functions in the
-- order of a message's life.  A function in language sql comes after those it calls.
-- A file is in the folder of its noun: a lane belongs to a channel, a binding to an exchange, a session to a worker.
-- The files beside this one are not part of a queue: people run them by hand.
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
select to_regclass(quote_ident(current_schema()) || '.pgqueue_message') is not null as is_installed \gset
\if :is_installed
  \ir upgrade.sql
\else
begin;

-- A function keeps the search_path with which it was made.  "$user" is another schema for each login that calls it.
do $$
begin
    if current_setting('search_path') like '%$user%' then
        perform set_config('search_path', (
            select string_agg(quote_ident(s.name), ', ' order by s.place)
            from unnest(current_schemas(false)) with ordinality as s (name, place)
        ), true);
    end if;
end
$$;

do $$
declare
    v_there text[] := array(
        select c.relname
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = current_schema() and c.relname like 'pgqueue\_%' and c.relkind in ('r', 'p')
        union all
        -- One with other parameters would stay beside that of today, and calls would be ambiguous.
        select p.oid::regprocedure::text
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = current_schema() and p.proname like 'pgqueue\_%'
        order by 1
    );
begin
    if v_there <> '{}' then
        raise exception 'the schema % lacks pgqueue_message, and has % other parts of a queue: %',
            current_schema(), cardinality(v_there),
            array_to_string(v_there[:3], ', ') || case when cardinality(v_there) > 3 then ', ...' else '' end
            using hint = coalesce((
                select format('Its tables are in the schema %s: psql -f sql/repin.sql, with that schema first in the '
                              'search_path, moves the functions there.', min(t.relnamespace::regnamespace::text))
                from pg_class t
                where t.relname = 'pgqueue_message' and t.relkind = 'r' and not exists (
                    select from pg_proc p
                    where p.pronamespace = t.relnamespace and p.proname = 'pgqueue_message_create')
                having count(*) > 0
            ), 'Restore what is missing. Only if you need no message of it: psql -f sql/uninstall.sql');
    end if;
end
$$;

-- Tables.  Each file makes the tables of its noun, with their indexes and constraints.
\ir tables/pgqueue_message.sql
\ir tables/pgqueue_attempt.sql
\ir tables/pgqueue_worker.sql
\ir tables/pgqueue_queue.sql
\ir tables/pgqueue_schedule.sql
\ir tables/pgqueue_ledger.sql
\ir tables/pgqueue_exchange.sql
\ir tables/pgqueue_report.sql
\ir tables/pgqueue_channel.sql
\ir tables/pgqueue_ended.sql
\ir tables/pgqueue_lake.sql
\ir tables/pgqueue_edit.sql
\ir tables/pgqueue_rollup.sql
\ir tables/pgqueue_replayed.sql
\ir tables/pgqueue_step.sql
\ir tables/pgqueue_event.sql

-- Clock.  The queue takes the time from the database alone, and stores times of messages in milliseconds since 1970.
\ir clock/pgqueue_to_epoch.sql
\ir clock/pgqueue_from_epoch.sql
\ir clock/pgqueue_clock.sql
\ir clock/pgqueue_now.sql

-- Enqueue.  A message is one row, and the transaction that inserts it wakes a sleeping worker.
\ir queue/pgqueue_advisory_lock.sql
\ir worker/pgqueue_worker_wake.sql
\ir worker/pgqueue_worker_wake_by.sql
\ir channel/pgqueue_channel_room.sql
\ir message/pgqueue_message_is_large.sql
\ir message/pgqueue_message_readable.sql
\ir message/pgqueue_message_create.sql
\ir message/pgqueue_message_create_unique.sql
\ir message/pgqueue_message_create_after.sql
\ir message/pgqueue_message_create_item.sql
\ir message/pgqueue_message_lock_keys.sql
\ir message/pgqueue_message_create_many.sql
\ir message/pgqueue_message_reschedule.sql

-- Dequeue.  A consumer takes the first ready messages, and locks them for a while.
\ir worker/pgqueue_session_worker.sql
\ir message/pgqueue_message_levels.sql
\ir message/pgqueue_message_queues.sql
\ir message/pgqueue_message_next_at.sql
\ir message/pgqueue_message_attention_at.sql
\ir message/pgqueue_message_await_turn.sql
\ir message/pgqueue_message_dequeue.sql

-- Keep.  The consumer extends its locks, reports progress, learns of cancellations, and gives back messages not begun.
\ir message/pgqueue_message_heartbeat.sql
\ir message/pgqueue_message_keep.sql
\ir message/pgqueue_message_progress.sql
\ir message/pgqueue_message_request_cancel.sql
\ir message/pgqueue_message_cancellations.sql
\ir message/pgqueue_message_release.sql
\ir message/pgqueue_message_abandon.sql

-- End.  An attempt succeeds, fails, is cancelled, is lost or puts its message back, and goes into the history each time.
\ir attempt/pgqueue_attempt_error.sql
\ir attempt/pgqueue_attempt_append.sql
\ir child/pgqueue_child_cancel.sql
\ir message/pgqueue_message_complete.sql
\ir message/pgqueue_message_defer.sql
\ir message/pgqueue_message_fail.sql
\ir message/pgqueue_message_cancel.sql
\ir message/pgqueue_message_lose.sql
\ir message/pgqueue_message_expire.sql
\ir message/pgqueue_quarantine_waits.sql
\ir message/pgqueue_quarantine_dequeue.sql

-- Unknown.  A message that a worker does not know is parked until one that knows it comes, and fails when none does.
\ir message/pgqueue_message_park.sql
\ir message/pgqueue_message_parked.sql
\ir message/pgqueue_message_parked_calls.sql
\ir message/pgqueue_message_unpark.sql
\ir message/pgqueue_message_unknown_fail.sql

-- After.  The end of a message releases the messages that wait for it.
\ir message/pgqueue_message_ended.sql
\ir message/pgqueue_message_look.sql
\ir event/pgqueue_event_arrive.sql
\ir message/pgqueue_message_settle.sql

-- History.  Each day has a partition, and an attempt of it can be enqueued again.
\ir attempt/pgqueue_attempt_partition.sql
\ir child/pgqueue_child_keep.sql
\ir attempt/pgqueue_attempt_maintain.sql
\ir attempt/pgqueue_attempt_fingerprint.sql
\ir attempt/pgqueue_attempt_drop.sql
\ir attempt/pgqueue_attempt_enqueue.sql

-- Roll-up.  Workers add ended attempts up, by queue and task, so that figures of hours and days are there at once.
\ir rollup/pgqueue_histogram_sum.sql
\ir rollup/pgqueue_rollup_add.sql
\ir rollup/pgqueue_rollup_prune.sql
-- Durable.  The steps of a durable task are recorded, and it is suspended while it waits: for a time, an event, a decision
-- or its children.
\ir step/pgqueue_name_require.sql
\ir step/pgqueue_step_refuse.sql
\ir step/pgqueue_step_record.sql
\ir step/pgqueue_step_record_many.sql
\ir step/pgqueue_step_load.sql
\ir step/pgqueue_step_result.sql
\ir step/pgqueue_step_partition.sql
\ir step/pgqueue_step_maintain.sql
\ir message/pgqueue_message_suspend.sql
\ir event/pgqueue_event_put.sql
\ir event/pgqueue_event_emit.sql
\ir approval/pgqueue_approval_decide.sql
\ir child/pgqueue_child_add.sql
\ir child/pgqueue_child_outcomes.sql
\ir step/pgqueue_step_enqueue.sql
\ir budget/pgqueue_budget_spend.sql

-- Channels.  Messages of a channel wait in lanes, so that the channel's limits hold and channels take turns.
\ir message/pgqueue_message_lane.sql
\ir channel/pgqueue_channel_prune.sql
\ir channel/pgqueue_lane_arm.sql
\ir channel/pgqueue_lane_dequeue.sql
\ir channel/pgqueue_lane_dequeue_apart.sql
\ir channel/pgqueue_channel_set.sql
\ir channel/pgqueue_channel_release.sql
\ir channel/pgqueue_channel_repair.sql

-- Queues.  Nothing is dequeued from a paused queue.  The backlog tells an autoscaler how many workers are needed.
\ir queue/pgqueue_queue_pause.sql
\ir queue/pgqueue_queue_resume.sql
\ir queue/pgqueue_backlog.sql

-- Schedules.  A schedule enqueues one message for each of its times.
\ir schedule/pgqueue_schedule_declare.sql
\ir schedule/pgqueue_schedule_fire.sql
\ir schedule/pgqueue_schedule_prune.sql

-- Exchanges.  An exchange puts a message into every queue that is bound to it with a pattern that matches.
\ir exchange/pgqueue_exchange_declare.sql
\ir exchange/pgqueue_exchange_delete.sql
\ir exchange/pgqueue_exchange_route.sql
\ir exchange/pgqueue_binding_compile.sql
\ir exchange/pgqueue_binding_declare.sql
\ir exchange/pgqueue_binding_delete.sql
\ir message/pgqueue_message_publish.sql

-- Workers.  A worker has a row while it lives, and the attempts of a dead worker are ended at once, or soon.
\ir worker/pgqueue_worker_seen.sql
\ir worker/pgqueue_worker_lacks.sql
\ir worker/pgqueue_version_key.sql
\ir worker/pgqueue_worker_version.sql
\ir worker/pgqueue_worker_gone.sql
\ir worker/pgqueue_worker_order.sql
\ir worker/pgqueue_worker_died.sql
\ir worker/pgqueue_worker_number.sql
\ir worker/pgqueue_worker_hold.sql
\ir worker/pgqueue_worker_expire.sql

-- Spark.  The tasks of a job stage their messages, and one transaction enqueues them.
\ir staged/pgqueue_staged_enqueue.sql
\ir staged/pgqueue_staged_discard.sql

-- Lakes.  Each export records how far the history was read, and retention waits for it.
\ir lake/pgqueue_lake_move.sql
\ir lake/pgqueue_lake_forget.sql
-- Edits.  An edit changes everything that matches a filter, in steps that workers do.
\ir attempt/pgqueue_attempt_error_group.sql
\ir edit/pgqueue_edit_check.sql
\ir edit/pgqueue_edit_messages.sql
\ir edit/pgqueue_edit_attempts.sql
\ir edit/pgqueue_edit_ask.sql
\ir edit/pgqueue_edit_stop.sql
\ir edit/pgqueue_edit_resume.sql
\ir edit/pgqueue_edit_change.sql
\ir edit/pgqueue_edit_step.sql

-- Version.  What is installed, for those who upgrade it or need a part of it.
\ir queue/pgqueue_version.sql

-- The partitions of today and the days ahead.
select pgqueue_attempt_maintain();
commit;
\endif
