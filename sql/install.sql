-- Installs the queue into the first schema of the search_path, without Django:
--   psql -f sql/install.sql
-- All or nothing.  The order is that of the migrations: tables first, then each function after those it calls.
\set ON_ERROR_STOP on
begin;
\ir pgqueue_message.sql
\ir pgqueue_attempt.sql
\ir pgqueue_worker.sql
\ir pgqueue_queue.sql
\ir pgqueue_schedule.sql
\ir pgqueue_ledger.sql
\ir pgqueue_exchange.sql
\ir pgqueue_report.sql
\ir pgqueue_to_epoch.sql
\ir pgqueue_from_epoch.sql
\ir pgqueue_clock.sql
\ir pgqueue_now.sql
\ir pgqueue_session_worker.sql
\ir pgqueue_worker_wake.sql
\ir pgqueue_worker_seen.sql
\ir pgqueue_worker_gone.sql
\ir pgqueue_attempt_append.sql
\ir pgqueue_attempt_partition.sql
\ir pgqueue_attempt_maintain.sql
\ir pgqueue_attempt_fingerprint.sql
\ir pgqueue_attempt_drop.sql
\ir pgqueue_message_create.sql
\ir pgqueue_message_create_unique.sql
\ir pgqueue_message_create_item.sql
\ir pgqueue_message_create_after.sql
\ir pgqueue_message_lock_keys.sql
\ir pgqueue_message_create_many.sql
\ir pgqueue_message_queues.sql
\ir pgqueue_message_next_at.sql
\ir pgqueue_message_expire.sql
\ir pgqueue_message_settle.sql
\ir pgqueue_message_dequeue.sql
\ir pgqueue_message_heartbeat.sql
\ir pgqueue_message_release.sql
\ir pgqueue_message_progress.sql
\ir pgqueue_message_complete.sql
\ir pgqueue_message_defer.sql
\ir pgqueue_message_fail.sql
\ir pgqueue_message_cancel.sql
\ir pgqueue_message_request_cancel.sql
\ir pgqueue_message_cancellations.sql
\ir pgqueue_queue_pause.sql
\ir pgqueue_queue_resume.sql
\ir pgqueue_message_reschedule.sql
\ir pgqueue_attempt_enqueue.sql
\ir pgqueue_schedule_declare.sql
\ir pgqueue_schedule_fire.sql
\ir pgqueue_schedule_prune.sql
\ir pgqueue_staged_enqueue.sql
\ir pgqueue_staged_discard.sql
\ir pgqueue_exchange_declare.sql
\ir pgqueue_exchange_delete.sql
\ir pgqueue_exchange_route.sql
\ir pgqueue_binding_compile.sql
\ir pgqueue_binding_declare.sql
\ir pgqueue_binding_delete.sql
\ir pgqueue_message_publish.sql
select pgqueue_attempt_maintain();
commit;
