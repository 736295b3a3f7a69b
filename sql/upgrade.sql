-- Upgrades the queue in the first schema of the search_path to the release of these files, without Django:
--   psql -f sql/upgrade.sql
-- All or nothing, release by release, and indexes after that.  It does what is due, says what that was, and may be run
-- again.  It waits for tables that are in use, but never for so long at a time that others wait behind it.  Where long
-- transactions overlap, it has to wait for longer than they take:
--   PGOPTIONS='-c pgqueue.upgrade_lock_ms=1000' psql -f sql/upgrade.sql
-- If you use roles.sql, run that again for new functions.
-- Written by python -m tests.support.upgrade_sql, from the migrations and the other files: change those.
\set ON_ERROR_STOP on
\set AUTOCOMMIT on

do $$
begin
    perform set_config('pgqueue.limits', (
        select jsonb_object_agg(s.name, s.setting)::text from pg_settings s
        where s.name in ('statement_timeout', 'transaction_timeout', 'lock_timeout')
    ), false);
    perform set_config(l.key, '0', false) from jsonb_each_text(current_setting('pgqueue.limits')::jsonb) as l;
end
$$;
do $$
declare
    v_number bigint := (
        select hashtextextended('pgqueue upgrade ' || n.oid, 0) from pg_namespace n where n.nspname = current_schema()
    );
    v_patience interval := '600 s';
    v_begun timestamptz := clock_timestamp();
    v_other record;
begin
    while not pg_try_advisory_lock(v_number) loop
        if clock_timestamp() > v_begun + v_patience then
            select a.pid, a.state, a.state_change into v_other
            from pg_locks l join pg_stat_activity a on a.pid = l.pid
            where l.locktype = 'advisory' and l.granted and l.objsubid = 1
              and l.database = (select d.oid from pg_database d where d.datname = current_database())
              and l.classid::bigint << 32 | l.objid::bigint = v_number;
            raise exception 'session % (% since %) upgrades this queue, and has not ended within %',
                v_other.pid, v_other.state, v_other.state_change, v_patience
                using errcode = 'lock_not_available',
                      hint = format('Nothing was changed. Run the upgrade again when that session has ended. If it '
                          'does something else, it is the connection of a pooler in transaction mode: end it by select '
                          'pg_terminate_backend(%s), and do not upgrade through that pooler.', v_other.pid);
        end if;
        commit;
        perform pg_sleep(0.2);
    end loop;
end
$$;

select current_schema() as schema, coalesce((
    select coalesce((
        select substring(p.prosrc from 'select ''([0-9]+[.][0-9]+[.][0-9]+)''') from pg_proc p
        where p.pronamespace = c.relnamespace and p.proname = 'pgqueue_version'
    ), '0.1.0')
    from pg_class c where c.oid = to_regclass(quote_ident(current_schema()) || '.pgqueue_message')
), '') as installed \gset
select :'installed' = '' as is_missing, string_to_array(:'installed', '.')::integer[] > '{0, 2, 0}'::integer[] as is_newer,
       string_to_array(:'installed', '.')::integer[] = '{0, 2, 0}'::integer[] as is_current \gset

-- The tables and functions of each release.
select coalesce(string_agg(w.name, ', ' order by w.name), '') as missing, count(*) > 0 as is_half
from (values
    ('0.1.0', array['pgqueue_message', 'pgqueue_attempt', 'pgqueue_worker', 'pgqueue_queue', 'pgqueue_schedule', 'pgqueue_ledger', 'pgqueue_exchange', 'pgqueue_channel', 'pgqueue_ended', 'pgqueue_to_epoch', 'pgqueue_from_epoch', 'pgqueue_clock', 'pgqueue_now', 'pgqueue_advisory_lock', 'pgqueue_worker_wake', 'pgqueue_channel_room', 'pgqueue_message_create', 'pgqueue_message_create_unique', 'pgqueue_message_create_after', 'pgqueue_message_create_item', 'pgqueue_message_lock_keys', 'pgqueue_message_create_many', 'pgqueue_message_reschedule', 'pgqueue_session_worker', 'pgqueue_message_levels', 'pgqueue_message_queues', 'pgqueue_message_next_at', 'pgqueue_message_await_turn', 'pgqueue_message_dequeue', 'pgqueue_message_heartbeat', 'pgqueue_message_keep', 'pgqueue_message_progress', 'pgqueue_message_request_cancel', 'pgqueue_message_cancellations', 'pgqueue_message_release', 'pgqueue_attempt_error', 'pgqueue_attempt_append', 'pgqueue_message_complete', 'pgqueue_message_defer', 'pgqueue_message_fail', 'pgqueue_message_cancel', 'pgqueue_message_lose', 'pgqueue_message_expire', 'pgqueue_quarantine_waits', 'pgqueue_quarantine_dequeue', 'pgqueue_message_ended', 'pgqueue_message_look', 'pgqueue_message_settle', 'pgqueue_attempt_partition', 'pgqueue_attempt_maintain', 'pgqueue_attempt_fingerprint', 'pgqueue_attempt_drop', 'pgqueue_attempt_enqueue', 'pgqueue_message_lane', 'pgqueue_channel_prune', 'pgqueue_lane_arm', 'pgqueue_lane_dequeue', 'pgqueue_lane_dequeue_apart', 'pgqueue_channel_set', 'pgqueue_channel_release', 'pgqueue_channel_repair', 'pgqueue_queue_pause', 'pgqueue_queue_resume', 'pgqueue_schedule_declare', 'pgqueue_schedule_fire', 'pgqueue_schedule_prune', 'pgqueue_exchange_declare', 'pgqueue_exchange_delete', 'pgqueue_exchange_route', 'pgqueue_binding_compile', 'pgqueue_binding_declare', 'pgqueue_binding_delete', 'pgqueue_message_publish', 'pgqueue_worker_seen', 'pgqueue_worker_gone', 'pgqueue_worker_died', 'pgqueue_staged_enqueue', 'pgqueue_staged_discard']),
    ('0.2.0', array['pgqueue_message', 'pgqueue_attempt', 'pgqueue_worker', 'pgqueue_queue', 'pgqueue_schedule', 'pgqueue_ledger', 'pgqueue_exchange', 'pgqueue_channel', 'pgqueue_ended', 'pgqueue_lake', 'pgqueue_edit', 'pgqueue_rollup', 'pgqueue_replayed', 'pgqueue_step', 'pgqueue_event', 'pgqueue_to_epoch', 'pgqueue_from_epoch', 'pgqueue_clock', 'pgqueue_now', 'pgqueue_advisory_lock', 'pgqueue_worker_wake', 'pgqueue_worker_wake_by', 'pgqueue_channel_room', 'pgqueue_message_is_large', 'pgqueue_message_readable', 'pgqueue_message_create', 'pgqueue_message_create_unique', 'pgqueue_message_create_after', 'pgqueue_message_create_item', 'pgqueue_message_lock_keys', 'pgqueue_message_create_many', 'pgqueue_message_reschedule', 'pgqueue_session_worker', 'pgqueue_message_levels', 'pgqueue_message_queues', 'pgqueue_message_next_at', 'pgqueue_message_attention_at', 'pgqueue_message_await_turn', 'pgqueue_message_dequeue', 'pgqueue_message_heartbeat', 'pgqueue_message_keep', 'pgqueue_message_progress', 'pgqueue_message_request_cancel', 'pgqueue_message_cancellations', 'pgqueue_message_release', 'pgqueue_message_abandon', 'pgqueue_attempt_error', 'pgqueue_attempt_append', 'pgqueue_child_cancel', 'pgqueue_message_complete', 'pgqueue_message_defer', 'pgqueue_message_fail', 'pgqueue_message_cancel', 'pgqueue_message_lose', 'pgqueue_message_expire', 'pgqueue_quarantine_waits', 'pgqueue_quarantine_dequeue', 'pgqueue_message_park', 'pgqueue_message_parked', 'pgqueue_message_parked_calls', 'pgqueue_message_unpark', 'pgqueue_message_unknown_fail', 'pgqueue_message_ended', 'pgqueue_message_look', 'pgqueue_event_arrive', 'pgqueue_message_settle', 'pgqueue_attempt_partition', 'pgqueue_child_keep', 'pgqueue_attempt_maintain', 'pgqueue_attempt_fingerprint', 'pgqueue_attempt_drop', 'pgqueue_attempt_enqueue', 'pgqueue_histogram_sum', 'pgqueue_rollup_add', 'pgqueue_rollup_prune', 'pgqueue_name_require', 'pgqueue_step_refuse', 'pgqueue_step_record', 'pgqueue_step_record_many', 'pgqueue_step_load', 'pgqueue_step_result', 'pgqueue_step_partition', 'pgqueue_step_maintain', 'pgqueue_message_suspend', 'pgqueue_event_put', 'pgqueue_event_emit', 'pgqueue_approval_decide', 'pgqueue_child_add', 'pgqueue_child_outcomes', 'pgqueue_step_enqueue', 'pgqueue_budget_spend', 'pgqueue_message_lane', 'pgqueue_channel_prune', 'pgqueue_lane_arm', 'pgqueue_lane_dequeue', 'pgqueue_lane_dequeue_apart', 'pgqueue_channel_set', 'pgqueue_channel_release', 'pgqueue_channel_repair', 'pgqueue_queue_pause', 'pgqueue_queue_resume', 'pgqueue_backlog', 'pgqueue_schedule_declare', 'pgqueue_schedule_fire', 'pgqueue_schedule_prune', 'pgqueue_exchange_declare', 'pgqueue_exchange_delete', 'pgqueue_exchange_route', 'pgqueue_binding_compile', 'pgqueue_binding_declare', 'pgqueue_binding_delete', 'pgqueue_message_publish', 'pgqueue_worker_seen', 'pgqueue_worker_lacks', 'pgqueue_version_key', 'pgqueue_worker_version', 'pgqueue_worker_gone', 'pgqueue_worker_order', 'pgqueue_worker_died', 'pgqueue_worker_number', 'pgqueue_worker_hold', 'pgqueue_worker_expire', 'pgqueue_staged_enqueue', 'pgqueue_staged_discard', 'pgqueue_lake_move', 'pgqueue_lake_forget', 'pgqueue_attempt_error_group', 'pgqueue_edit_check', 'pgqueue_edit_messages', 'pgqueue_edit_attempts', 'pgqueue_edit_ask', 'pgqueue_edit_stop', 'pgqueue_edit_resume', 'pgqueue_edit_change', 'pgqueue_edit_step', 'pgqueue_version'])
) as r (version, names)
cross join lateral unnest(r.names) as w (name)
where r.version = :'installed'
  and to_regclass(quote_ident(current_schema()) || '.' || w.name) is null
  and not exists (
      select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
      where n.nspname = current_schema() and p.proname = w.name
  ) \gset

\if :is_missing
do $$
begin
    raise exception 'there is no queue in the schema %', current_schema()
        using hint = coalesce((
            select format('The search_path finds one in %s: set the search_path to that schema alone.',
                          c.relnamespace::regnamespace)
            from pg_class c where c.oid = to_regclass('pgqueue_message')
        ), 'To make one: psql -f sql/install.sql');
end
$$;
\elif :is_half
select set_config('pgqueue.missing', :'missing', false) as missing \gset
do $$
begin
    raise exception 'the queue in the schema % lacks %', current_schema(), current_setting('pgqueue.missing')
        using hint = coalesce((
            select format('Its functions are in the schema %s: psql -f sql/repin.sql moves them to its tables.',
                          min(p.pronamespace::regnamespace::text))
            from pg_proc p
            where p.proname = 'pgqueue_message_create'
              and not exists (
                select from pg_proc o
                where o.pronamespace = to_regnamespace(quote_ident(current_schema())) and o.proname = p.proname)
              and not exists (
                select from pg_class t where t.relnamespace = p.pronamespace and t.relname = 'pgqueue_message')
            having count(*) > 0
        ), 'Restore it from sql/ of its release. Only if you need no message of it: psql -f sql/uninstall.sql');
end
$$;
\elif :is_newer
\echo The queue in the schema :schema is that of :installed, newer than these files (0.2.0). Nothing was done.
\elif :is_current
\echo The queue in the schema :schema is that of 0.2.0. Nothing was done.
\else

-- From 0.1.0: 0002_after_0_1_0.  One query, and so one transaction: nobody can enqueue from its lock to its end.
select string_to_array(:'installed', '.')::integer[] <= '{0, 1, 0}'::integer[] as is_due \gset
\if :is_due
do $$
begin
    if current_setting('search_path') like '%$user%' then
        perform set_config('search_path', (
            select string_agg(quote_ident(s.name), ', ' order by s.place)
            from unnest(current_schemas(false)) with ordinality as s (name, place)
        ), true);
    end if;
end
$$\;
do $$
declare
    v_lock_timeout text := current_setting('lock_timeout');
    v_last_ms text := coalesce(nullif(current_setting('pgqueue.upgrade_lock_ms', true), ''), '80');
    v_lock_ms integer := 20;
    v_give_up_at timestamptz := clock_timestamp() + interval '60 s';
    v_others text;
begin
    if v_last_ms !~ '^[1-9][0-9]{0,5}$' then
        raise exception 'pgqueue.upgrade_lock_ms is %', quote_literal(v_last_ms)
            using hint = 'Nothing was changed. Set it to a number of milliseconds, such as 1000.';
    end if;
    -- A lock that was not got soon is not waited for: statements of others would queue up behind.
    loop
        begin
            perform set_config('lock_timeout', least(v_lock_ms, v_last_ms::integer) || 'ms', true);
            lock table pgqueue_message in access exclusive mode;
            -- Who has used that table goes on with another one: a long wait with a lock in hand would be a deadlock.
            perform set_config('lock_timeout', '20ms', true);
            lock table pgqueue_attempt, pgqueue_worker, pgqueue_ended, pgqueue_report_hour, pgqueue_report_queue, pgqueue_report_error in access exclusive mode;
            exit;
        exception when lock_not_available then
            if clock_timestamp() > v_give_up_at then
                select string_agg(format('session %s (%s since %s)', o.pid, o.state, o.xact_start), ', ') into v_others
                from (
                    select distinct a.pid, a.state, a.xact_start
                    from pg_locks l join pg_stat_activity a on a.pid = l.pid
                    where l.relation = any (array['pgqueue_message', 'pgqueue_attempt', 'pgqueue_worker', 'pgqueue_ended', 'pgqueue_report_hour', 'pgqueue_report_queue', 'pgqueue_report_error']::regclass[]) and l.granted
                      and a.pid <> pg_backend_pid()
                ) as o;
                raise exception 'the queue was in use for more than 60 seconds, by %', v_others
                    using errcode = 'lock_not_available',
                          hint = format('Nothing was changed. Wait for the session or end it, and run the upgrade '
                              'again. If there is always another one, let it wait for longer than their transactions '
                              'take, instead of %s ms: PGOPTIONS="-c pgqueue.upgrade_lock_ms=1000"', v_last_ms);
            end if;
            perform pg_sleep(0.1 + random() / 5);
            v_lock_ms := least(2 * v_lock_ms, v_last_ms::integer);
        end;
    end loop;
    perform set_config('lock_timeout', v_lock_timeout, true);
end
$$\;
do $$
begin
    perform set_config('pgqueue.rights', coalesce((
        select jsonb_agg(jsonb_build_object('id', p.oid::bigint, 'name', p.proname, 'as_owner', p.prosecdef,
            'is_safe', p.proconfig::text like '%pg\_temp%', 'roles', (
            select jsonb_agg(a.grantee::bigint) from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
        )))
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = current_schema() and p.proname like 'pgqueue\_%' and p.prokind = 'f'
    ), '[]')::text, true);
end
$$\;
alter table pgqueue_message add column unknown_since bigint, add column parked_at bigint\;
alter table pgqueue_worker add column lacks text[],
    add constraint pgqueue_worker_lacks_few
        check (cardinality(lacks) <= 50 and octet_length(array_to_string(lacks, '')) <= 12750),
    add column refuses text[],
    add constraint pgqueue_worker_refuses_few
        check (cardinality(refuses) <= 50 and octet_length(array_to_string(refuses, '')) <= 12750)\;
alter table pgqueue_message add column max_lost smallint\;
alter table pgqueue_message
    drop constraint pgqueue_message_counts_range,
    add constraint pgqueue_message_counts_range check (
        least(attempt, max_attempts, checks, max_lost) >= 0 and greatest(attempt, max_attempts, checks) <= 2000000000) not valid\;
alter table pgqueue_message add column version text\;
alter table pgqueue_message
    drop constraint pgqueue_message_names_short,
    add constraint pgqueue_message_names_short check (
        queue <> '' and greatest(octet_length(queue), octet_length(channel), octet_length(task), octet_length(worker), octet_length(unique_key) - 2045, octet_length(version) + 155) <= 255) not valid\;
alter table pgqueue_worker add column version text, add constraint pgqueue_worker_version_short
    check (octet_length(version) <= 100 and version !~ '[\u0001-\u001f\u007f]')\;
alter table pgqueue_worker add column silent_until bigint\;
alter table pgqueue_worker add column server_started_at bigint\;
alter table pgqueue_worker add column is_asleep boolean not null
    generated always as (asleep_until is not null) stored\;
create index pgqueue_worker_asleep_ix on pgqueue_worker (id) where is_asleep\;
create index pgqueue_worker_room_ix on pgqueue_worker (id) where has_room\;
create index pgqueue_worker_silent_ix on pgqueue_worker (id) where silent_until is not null\;
-- The lakes that the history is exported to, and how far each of them has come.  A row is written when a lake has been
-- committed, so it may be behind its lake and is never ahead of it.  Retention waits for what no lake has read yet.
--   id               what the lake calls itself in the log of its tables
--   location         the folder or URL, as the last run named it
--   position         the lake has the rows of all transactions before this one
--   exported_at      when a run last found that the lake has everything up to its position; null: none has ended yet
--   missed_attempts  how many attempts retention has dropped before the lake had them, in all
--   missed_from, missed_until, missed_at   the first and the last such day, and when the last one was dropped
create table pgqueue_lake (
    id              text primary key,
    location        text not null,
    position        bigint not null,
    missed_attempts bigint not null default 0,
    exported_at     timestamptz,
    missed_at       timestamptz,
    missed_from     date,
    missed_until    date,
    constraint pgqueue_lake_texts_short check (octet_length(id) between 1 and 100 and octet_length(location) <= 2000),
    constraint pgqueue_lake_counts_range check (position >= 0 and missed_attempts >= 0),
    constraint pgqueue_lake_times_of_calendar check (
        exported_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'
        and missed_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
)\;
-- Edits: an action for everything that matches a filter, which workers do in steps (pgqueue_edit_step).  The filter and
-- the parameters are checked when an edit is asked for (pgqueue_edit_ask); who may ask is a matter of rights.
-- action      run_now, postpone, cancel, delete, move, prioritise: messages.  enqueue_again: final attempts
-- position    the last id that a step has looked at, from first_id on; last_id ends it: what comes later is not meant
-- done        messages that were changed.  asked: running ones that were asked to stop.  awaiting: those that wait for
--             others and were left out.  skipped: those that could not be changed, because they run, or need no change
-- locked_ids  messages that other sessions held when a step came by: they are tried once more at the end
create table pgqueue_edit (
    id          bigint generated by default as identity primary key,
    first_id    bigint not null,
    last_id     bigint not null,
    position    bigint not null,
    done        bigint not null default 0,
    asked       bigint not null default 0,
    awaiting    bigint not null default 0,
    skipped     bigint not null default 0,
    asked_at    timestamptz not null default now(),
    started_at  timestamptz,
    stopped_at  timestamptz,
    finished_at timestamptz,
    action      text not null,
    asked_by    text not null,
    stopped_by  text,
    error       text,
    filter      jsonb not null default '{}',
    parameters  jsonb not null default '{}',
    locked_ids  bigint[] not null default '{}',
    constraint pgqueue_edit_action_known check (
        action in ('run_now', 'postpone', 'cancel', 'delete', 'move', 'prioritise', 'enqueue_again')),
    constraint pgqueue_edit_names_short check (
        octet_length(asked_by) between 1 and 255 and octet_length(stopped_by) <= 255 and octet_length(error) <= 2000),
    constraint pgqueue_edit_filter_small check (octet_length(filter::text) <= 8000 and octet_length(parameters::text) <= 1000),
    constraint pgqueue_edit_times_of_calendar check (
        least(asked_at, started_at, stopped_at, finished_at) >= '0001-01-02 00:00:00+00'
        and greatest(asked_at, started_at, stopped_at, finished_at) <= '9999-12-30 00:00:00+00')
)\;

-- The edits that workers have to do.
create index pgqueue_edit_open_ix on pgqueue_edit (id) where finished_at is null and stopped_at is null\;

-- A second click asks for nothing more.
create unique index pgqueue_edit_once_ix on pgqueue_edit (action, md5(filter::text), md5(parameters::text))
    where finished_at is null\;
-- The messages of the history that a replay has enqueued again, each once under the name of the replay.  The transaction
-- that enqueues them writes the rows, so the two cannot disagree.  Replays delete rows that are older than a year.
create table pgqueue_replayed (
    replay      text not null,
    message_id  bigint not null,
    replayed_at timestamptz not null default now(),
    primary key (replay, message_id),
    constraint pgqueue_replayed_name_short check (octet_length(replay) between 1 and 200),
    constraint pgqueue_replayed_times_of_calendar check (
        replayed_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
)\;
alter table pgqueue_message add column suspended_attempt integer, add column awaited_event text\;
alter table pgqueue_ended add column event text\;
alter table pgqueue_attempt
    drop constraint pgqueue_attempt_status_known,
    add constraint pgqueue_attempt_status_known check (status in ('succeeded', 'deferred', 'retried', 'failed', 'cancelled', 'lost', 'suspended')) not valid\;
-- The steps of durable tasks.  Each row is written once and never changed, by the holder of the message.
-- kind says what it is: step, atomic, enqueue, sleep, event, approval.  status says what happened:
--   began    a step with recovery="manual" is about to run its function
--   failed   its function raised: error has the reason, and the step runs again in the next attempt
--   waiting  the task is suspended by this step; until (epoch ms) is the time at which the wait ends; null: never;
--            result is the event that it waits for, where its name is not that of the step
--   unasked  an attempt has come to its end without asking for this step, which an earlier one had done: after a deploy
--   done     result is what the step returns in every later attempt
-- Partitioned by the day (UTC) of recorded_at, so that retention drops partitions: before pgqueue_step_maintain drops a day,
-- it gives the steps of messages that are still in the queue, or have ended since, another recorded_at.
create table pgqueue_step (
    message_id  bigint not null,
    recorded_at timestamptz not null,
    started_at  timestamptz,
    finished_at timestamptz not null,
    until       bigint,
    attempt     integer not null,
    kind        text not null,
    status      text not null,
    name        text not null,
    error       text,
    result      jsonb,
    constraint pgqueue_step_name_short check (name <> '' and octet_length(name) <= 255),
    constraint pgqueue_step_times_of_calendar check (
        least(recorded_at, started_at, finished_at) >= '0001-01-02 00:00:00+00'
        and greatest(recorded_at, started_at, finished_at) <= '9999-12-30 00:00:00+00'),
    constraint pgqueue_step_words_known check (
        kind in ('step', 'atomic', 'enqueue', 'sleep', 'event', 'approval')
        and status in ('began', 'failed', 'waiting', 'unasked', 'done'))
) partition by range (recorded_at)\;

create index pgqueue_step_message_ix on pgqueue_step (message_id)\;

-- For the doctor.  A deploy makes a few such rows, and no other row costs anything.
create index pgqueue_step_unasked_ix on pgqueue_step (recorded_at) where status = 'unasked'\;

create table pgqueue_step_default partition of pgqueue_step default\;

-- As those of pgqueue_attempt: rows leave the default partition for others.
alter table pgqueue_step replica identity full\;
alter table pgqueue_step_default replica identity full\;

-- What a durable task may spend in all of its attempts together, and has spent (pgqueue_budget_spend).
create table pgqueue_budget (
    message_id bigint not null,
    name       text not null,
    spent      numeric not null,
    primary key (message_id, name),
    constraint pgqueue_budget_name_short check (name <> '' and octet_length(name) <= 255)
)\;

-- Messages that a step of the message parent_id has enqueued, or, with by_after, after which the message parent_id comes
-- and whose results it wants (pgqueue_message_create_after).  status, result and error are the end of the message, and
-- null as long as the history has it: they are copied here before the history is dropped (pgqueue_child_keep).
-- cancels: the message is cancelled with its parent, unless it has begun.  A message that was enqueued again from a step
-- is a parent, too (pgqueue_step_enqueue).
create table pgqueue_child (
    message_id    bigint not null,
    parent_id     bigint not null,
    created_at    timestamptz not null,
    cancels       boolean not null default true,
    status        text,
    error_class   text,
    error_message text,
    result        jsonb,
    by_after      boolean not null default false,
    primary key (message_id, parent_id),
    constraint pgqueue_child_times_of_calendar check (created_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
)\;

create index pgqueue_child_parent_ix on pgqueue_child (parent_id)\;

-- Retention looks at the oldest ones only.
create index pgqueue_child_created_ix on pgqueue_child using brin (created_at)\;
-- Events: each is emitted once, with a payload, by the transaction that inserts it.  Retention deletes them.
create table pgqueue_event (
    name       text primary key,
    emitted_at timestamptz not null,
    payload    jsonb not null,
    constraint pgqueue_event_times_of_calendar check (emitted_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_event_name_short check (name <> '' and octet_length(name) <= 512)
)\;

create index pgqueue_event_emitted_ix on pgqueue_event using brin (emitted_at)\;

-- Approvals: a durable task waits for the decision of a person.  permission is the Django permission that decides who
-- may, null: whoever may run messages.  details is what the person is shown.
create table pgqueue_approval (
    message_id bigint not null,
    asked_at   timestamptz not null,
    decided_at timestamptz,
    approved   boolean,
    name       text not null,
    permission text,
    decided_by text,
    comment    text,
    details    jsonb,
    primary key (message_id, name),
    constraint pgqueue_approval_times_of_calendar check (
        asked_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'
        and decided_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_approval_decided_whole check (num_nulls(decided_at, approved, decided_by) in (0, 3)),
    constraint pgqueue_approval_comment_short check (octet_length(comment) <= 10000)
)\;

create index pgqueue_approval_open_ix on pgqueue_approval (asked_at, message_id) where decided_at is null\;
create or replace function pgqueue_message_is_large(p_value jsonb) returns boolean
language sql stable
as $$
    -- Returns whether it is worth the while to look at the text of a JSON value (pgqueue_message_readable).
    -- A number takes 16 bytes or more, so that 2000 bytes of jsonb have at most 16.4 MB of text.  The size of a compressed
    -- value says nothing.
    -- The planner puts this test into the statement that calls it, so that a small message costs no call.
    select pg_column_size(p_value) > 2000 or pg_column_compression(p_value) is not null
$$\;
create or replace function pgqueue_message_readable(p_value jsonb, p_what text default null) returns jsonb
language plpgsql stable
as $$
-- Returns a JSON value, or null when its text is too large to be read back: jsonb stores 1e131071 in ten bytes, and
-- prints 131,072 digits.  Null, too, when it has bytes that are no UTF8, which a database in SQL_ASCII takes.
-- p_what: the name of a value that is to be written, for an error instead of null.  The functions that write messages
-- and ends pass it; a worker whose claim could not be read does not, and may read more.
declare
    v_max constant integer := case when p_what is null then 67108864 else 16777216 end;
    v_bytes bigint;
begin
    begin
        v_bytes := octet_length(p_value::text);
        perform convert_to(p_value::text, 'UTF8') where p_what is null;
    exception
        when program_limit_exceeded or out_of_memory or character_not_in_repertoire or untranslatable_character then
            v_bytes := 1073741824;
    end;
    if v_bytes > v_max and p_what is not null then
        raise exception '% has % bytes or more as text', p_what, v_bytes
            using errcode = 'program_limit_exceeded',
                  hint = format('It may have %s: store the data where it belongs and pass its key.', v_max);
    end if;
    return case when v_bytes <= v_max then p_value end;
end
$$\;
create or replace function pgqueue_attempt_append(
    p_message pgqueue_message,
    p_status text,
    p_final boolean,
    p_error jsonb default null,
    p_started_at timestamptz default null,
    p_finished_at timestamptz default null
) returns void
language sql
set search_path from current
as $$
    -- Appends a finished attempt to the history.  p_message is the row as it was while the attempt ran; p_error is
    -- {"class": ..., "message": ..., "traceback": ...} or null.  The functions that end attempts call this; consumers do not.
    insert into pgqueue_attempt (
        message_id, dequeue_at, created_at, started_at, finished_at, attempt, max_attempts, priority, final, status,
        queue, channel, task, unique_key, worker, error_class, error_message, traceback, content, headers)
    values (
        (p_message).id,
        coalesce(case when (p_message).parked_at is not null then coalesce((p_message).unknown_since, (p_message).parked_at) end,
                 (p_message).alone_at, (p_message).dequeue_at),
        (p_message).created_at, coalesce(p_started_at, (p_message).locked_at),
        coalesce(p_finished_at, pgqueue_clock()), (p_message).attempt, (p_message).max_attempts, (p_message).priority,
        p_final, p_status, (p_message).queue, (p_message).channel, (p_message).task, (p_message).unique_key,
        (p_message).worker,
        left(p_error ->> 'class', 255), left(p_error ->> 'message', 1000000),
        left(p_error ->> 'traceback', 1000000),
        -- Without what is too large to be read: it would break every query of the history that meets it.
        case when not p_final then null
             when pgqueue_message_is_large((p_message).content) then pgqueue_message_readable((p_message).content)
             else (p_message).content end,
        case when pgqueue_message_is_large((p_message).headers) then pgqueue_message_readable((p_message).headers)
             else (p_message).headers end)
$$\;
create or replace function pgqueue_message_defer(
    p_id bigint,
    p_attempt integer,
    p_worker text default null,
    p_dequeue_at bigint default null,
    p_state jsonb default null,
    p_error text default null,
    p_started_at timestamptz default null,
    p_finished_at timestamptz default null,
    p_max_attempts integer default 1
) returns text
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Puts a message that the caller holds back into the queue, to be dequeued again from p_dequeue_at on (epoch ms; null:
-- at once).  The next attempt finds p_state in the column state (null: the column keeps its value).  A worker of a later
-- version than the message's leaves its version with the state: earlier ones may not understand it.
-- p_error: the attempt ended in an error, a text or {"class": ..., "message": ..., "traceback": ...} as JSON.  Then this is a
-- retry, and when max_attempts (p_max_attempts, where it is null) is reached the message fails instead.  Without an
-- error no attempt is used up: a message may be deferred any number of times.
-- An attempt that ends like this has not killed its worker: the message leaves its quarantine (pgqueue_message_lose).
-- A message that was asked to stop (pgqueue_message_request_cancel) is cancelled instead.
-- Returns what was recorded: deferred, retried, failed or cancelled; null: the attempt is not the caller's any more, and
-- nothing happened.
-- Locks one row; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
    v_status text := case when p_error is null then 'deferred' else 'retried' end;
    v_now bigint := pgqueue_now();
    v_used integer;
    v_version text;
    v_error jsonb := pgqueue_attempt_error(p_error);
begin
    select m.* into v_message
    from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    for update;
    if not found then
        return null;
    end if;

    v_used := v_message.attempt;
    if p_error is not null and v_message.max_attempts is null and p_max_attempts > 1 then
        -- Deferring, and losing a task, raises max_attempts, so that neither uses an attempt up.  Here max_attempts is
        -- null, so nothing was raised.
        v_used := 1 + (
            select count(*) from pgqueue_attempt a
            where a.message_id = p_id and a.status not in ('deferred', 'suspended') and (a.status <> 'lost' or v_message.task is null));
    end if;

    if v_message.cancel_requested_at is not null then
        v_status := 'cancelled';
        delete from pgqueue_message m where m.id = p_id;
        perform pgqueue_child_cancel(array[p_id]);
    elsif p_error is not null and v_used >= coalesce(v_message.max_attempts, p_max_attempts) then
        v_status := 'failed';
        delete from pgqueue_message m where m.id = p_id;
    else
        if p_state is not null then
            p_state := pgqueue_message_readable(p_state, 'state');
            select w.version into v_version
            from pgqueue_worker w
            where w.id = v_message.worker and w.version is not null
              and (v_message.version is null
                   or pgqueue_version_key(w.version) collate "C" > pgqueue_version_key(v_message.version) collate "C");
        end if;
        update pgqueue_message m
        set unlock_at = null, locked_at = null, worker = null, progress = null,
            dequeue_at = coalesce(p_dequeue_at, v_now), in_line = coalesce(p_dequeue_at, v_now) <= v_now,
            alone_at = null, lost = 0, unknown_since = null,
            state = coalesce(p_state, m.state), version = coalesce(v_version, m.version),
            max_attempts = m.max_attempts + case when p_error is null and m.max_attempts < 2000000000 then 1 else 0 end,
            last_error = left(coalesce(v_error ->> 'message', v_error ->> 'class', m.last_error), 1000000)
        where m.id = p_id;
    end if;
    perform pgqueue_attempt_append(v_message, v_status, v_status in ('failed', 'cancelled'), v_error, p_started_at, p_finished_at);
    return v_status;
end
$$\;
create or replace function pgqueue_message_lane() returns trigger
language plpgsql
set search_path from current
set enable_seqscan = off
as $$
-- Records in pgqueue_arrival the events of lanes: a message that waits from some time on, or an attempt that ended.
-- It is a trigger, so that it covers every change of messages, deletes and updates by hand included, in the same
-- transaction: running cannot drift.  pgqueue_message_dequeue itself counts the messages that it locks.
-- When a dump is restored (two settings of pg_dump identify that), the restored pgqueue_channel already has the counts.
-- Then this records waiting messages only, with ids that no row of the dump has.
-- Writes one row of its own and locks none; an end that a halted lane waits for wakes a sleeping worker.
declare
    v_moved boolean := false;
    v_left boolean := false;
    v_waits boolean := false;
    v_runs boolean := false;
begin
    if tg_op = 'UPDATE' then
        v_moved := (old.channel, old.queue, old.task is null) is distinct from (new.channel, new.queue, new.task is null);
    end if;
    if tg_op <> 'INSERT' then
        v_left := old.channel is not null and old.unlock_at is not null
            and (tg_op = 'DELETE' or v_moved or new.unlock_at is null);
    end if;
    if tg_op <> 'DELETE' and new.channel is not null then
        v_runs := new.unlock_at is not null and (tg_op = 'INSERT' or v_moved);
        v_waits := new.unlock_at is null and new.dequeue_at < 9223372036854775806
            and (tg_op = 'INSERT' or v_moved or old.unlock_at is not null or old.dequeue_at <> new.dequeue_at);
    end if;

    if tg_op = 'INSERT' and current_setting('row_security') = 'off' and current_setting('check_function_bodies') = 'off' then
        if v_waits then
            insert into pgqueue_arrival (id, channel, queue, raw, dequeue_at)
            values (-new.id, new.channel, new.queue, new.task is null, new.dequeue_at)
            on conflict do nothing;
        end if;
        return null;
    end if;
    if v_left then
        insert into pgqueue_arrival (channel, queue, raw, ended, dequeue_at)
        values (old.channel, old.queue, old.task is null, 1, case when v_waits and not v_moved then new.dequeue_at end);
        if exists (select from pgqueue_worker w where w.asleep_until is not null) and exists (
            select from pgqueue_lane l
            where l.channel = old.channel and l.queue = old.queue and l.raw = (old.task is null) and l.parked
        ) then
            perform pgqueue_worker_wake(old.queue, old.task is not null);
        end if;
    end if;
    if tg_op = 'DELETE' and old.unlock_at is null and exists (
        select from pgqueue_channel c where c.name = old.channel and c.released_at is not null
    ) then  -- it may have been the last message of the channel
        insert into pgqueue_arrival (channel, queue, raw, dequeue_at)
        values (old.channel, old.queue, old.task is null, pgqueue_now());
    end if;
    if v_runs or v_waits and not (v_left and not v_moved) then
        insert into pgqueue_arrival (channel, queue, raw, ended, dequeue_at)
        values (new.channel, new.queue, new.task is null, case when v_runs then -1 else 0 end,
                case when v_waits then new.dequeue_at end);
    end if;
    return null;
end
$$\;

create or replace trigger pgqueue_message_lane_insert after insert on pgqueue_message
for each row when (new.channel is not null)
execute function pgqueue_message_lane()\;

create or replace trigger pgqueue_message_lane_update after update on pgqueue_message
for each row when (
    (old.channel is not null or new.channel is not null)
    and (new.unlock_at is null or old.channel is distinct from new.channel or old.queue <> new.queue))
execute function pgqueue_message_lane()\;

create or replace trigger pgqueue_message_lane_delete after delete on pgqueue_message
for each row when (old.channel is not null)
execute function pgqueue_message_lane()\;
drop function if exists pgqueue_message_reschedule(bigint[], bigint)\;
create or replace function pgqueue_message_reschedule(
    p_ids bigint[],
    p_dequeue_at bigint default null,
    p_break_dependencies boolean default false
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives waiting messages another dequeue_at (epoch ms; null: now, that is, run them at once).  Returns the ids of the
-- moved messages; one that runs, has ended, or waits for others (pgqueue_message_create_after) is missing in the result,
-- and nothing happened to it.  A quarantined message is taken alone from this time on.  A parked message is unparked.
--   p_break_dependencies  true: a message that waits for others is moved, too.  It does not wait for them any more: it
--                         may run while they run, and it runs although one of them fails.
-- Locks rows of pgqueue_message in the order of ids; wakes one sleeping worker for each queue that got work.
declare
    v_now bigint := pgqueue_now();
    v_dequeue_at bigint := coalesce(p_dequeue_at, v_now);
    v_message record;
    v_queues text[] := '{}';
begin
    for v_message in
        update pgqueue_message m
        set dequeue_at = case when m.alone_at is null then v_dequeue_at else 9223372036854775807 end,
            in_line = m.alone_at is null and v_dequeue_at <= v_now,
            alone_at = case when m.alone_at is not null then v_dequeue_at end, parked_at = null, after_ids = null, after_policy = null,
            check_at = null, checks = null, awaited_id = null,
            -- What it has waited for may have come: retention keeps that for a message that is suspended no more.
            suspended_attempt = case when m.suspended_attempt is null or m.awaited_event is not null
                                          or not m.in_line and m.parked_at is null
                                     then m.suspended_attempt else 0 end
        where m.id = any (p_ids) and m.worker is null and (p_break_dependencies or m.after_ids is null)
        returning m.id, m.queue
    loop
        if v_message.queue <> all (v_queues) then
            v_queues := v_queues || v_message.queue;
            if v_dequeue_at <= v_now then
                perform pgqueue_worker_wake(v_message.queue);
            else
                perform pgqueue_worker_wake_by(v_message.queue, null, v_dequeue_at);
            end if;
        end if;
        return next v_message.id;
    end loop;
end
$$\;
create or replace function pgqueue_message_park(
    p_ids bigint[],
    p_attempts integer[],
    p_worker text,
    p_reasons text[],
    p_unknown boolean default true
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives back messages that the caller holds and cannot run, because it does not know the task or its parameters
-- differ: as pgqueue_message_release does, so the attempt does not count.  The messages are parked: no dequeue sees
-- them until a worker that knows them calls pgqueue_message_unpark.  p_reasons are for the people who look for the
-- cause, one for each id, and become last_error.  Returns the ids of the messages that were the caller's.
-- p_unknown false: the caller may run them, and leaves them to living workers of a later version.  Then they do not
-- count as unknown, never fail for that, and only workers of their version or a later one are woken.
-- Their dequeue_at is out of reach, and one less than that of messages that wait for others: so both can be counted
-- by index.
-- A raw message is ready again, because its consumers know no tasks.  One that was asked to stop is cancelled.
-- Wakes all sleeping workers of these queues that have not recorded that they lack the task (pgqueue_worker.lacks), or,
-- of unknown messages, that they refuse its arguments (refuses): the payload of that notification is empty, and no queue
-- has such a name.
-- Locks rows of pgqueue_message in the order of ids; reads pgqueue_worker without a row lock.
declare
    v_now bigint := pgqueue_now();
    v_ours bigint[] := array(select pgqueue_message_release(p_ids, p_attempts, p_worker));
    v_queues text[];
    v_tasks text[];
    v_versions text[];
begin
    with parked as (
        update pgqueue_message m
        set parked_at = v_now, in_line = false, dequeue_at = 9223372036854775806,
            unknown_since = case when p_unknown then coalesce(m.unknown_since, v_now) else m.unknown_since end,
            alone_at = case when m.alone_at is not null then 9223372036854775807 end,
            last_error = left(p_reasons[array_position(p_ids, m.id)], 2000)
        where m.id = any (v_ours) and m.worker is null and m.task is not null
        returning m.queue, m.task, case when not p_unknown then m.version end as version
    )
    select array_agg(d.queue), array_agg(d.task), array_agg(d.version) into v_queues, v_tasks, v_versions
    from (select distinct p.queue, p.task, p.version from parked p) as d;

    perform pg_notify('pgqueue_' || w.id, '')
    from pgqueue_worker w
    where w.tasks and w.asleep_until > v_now and w.id <> p_worker and exists (
        select from unnest(v_queues, v_tasks, v_versions) as p (queue, task, version)
        where (w.queues is null or p.queue = any (w.queues)) and p.queue <> all (w.exclude_queues)
          and p.task <> all (coalesce(w.lacks, '{}'))
          and case when p.version is null then p.task <> all (coalesce(w.refuses, '{}'))
                   else pgqueue_version_key(w.version) collate "C" >= pgqueue_version_key(p.version) collate "C" end
    );
    return query select n from unnest(v_ours) as n;
end
$$\;
create or replace function pgqueue_message_parked(
    p_limit integer default 100,
    p_after_queue text default '',
    p_after_task text default '',
    p_count integer default 1000
) returns table (p_queue text, p_task text, p_messages integer, p_unknown_since bigint, p_reason text, p_version text)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
    -- Returns the tasks of parked messages in the order of (queue, task), up to p_limit, from the one after
    -- (p_after_queue, p_after_task) on: how many messages of it are parked, counted up to p_count; since when the first
    -- of them is unknown (epoch ms; null: none is, and all are left to workers of a later version); and the reason and
    -- the version of the message which is to be tried next.
    -- One probe of pgqueue_message_parked_ix and one of pgqueue_message_unknown_ix for each, beside what it counts.
    with recursive line as (
        (select m.queue, m.task, m.last_error, m.version
         from pgqueue_message m
         where m.parked_at is not null and m.task is not null and (m.queue, m.task) > (p_after_queue, p_after_task)
         order by m.queue, m.task, m.parked_at limit 1)
        union all
        select n.queue, n.task, n.last_error, n.version
        from line l
        cross join lateral (
            select m.queue, m.task, m.last_error, m.version
            from pgqueue_message m
            where m.parked_at is not null and m.task is not null and (m.queue, m.task) > (l.queue, l.task)
            order by m.queue, m.task, m.parked_at limit 1
        ) as n
    )
    select l.queue, l.task, c.messages, u.unknown_since, l.last_error, l.version
    from (select * from line limit p_limit) as l
    cross join lateral (
        select m.unknown_since from pgqueue_message m
        where m.parked_at is not null and m.queue = l.queue and m.task = l.task
        order by m.queue, m.task, m.unknown_since limit 1
    ) as u
    cross join lateral (
        select count(*)::integer as messages
        from (select from pgqueue_message m
              where m.parked_at is not null and m.queue = l.queue and m.task = l.task
              order by m.queue, m.task, m.parked_at limit p_count) as f
    ) as c
$$\;
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
$$\;
create or replace function pgqueue_message_unpark(
    p_queues text[],
    p_tasks text[],
    p_limit integer default 100,
    p_ids bigint[] default '{}'
) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Makes parked messages ready again: those of p_ids, and of each pair of p_queues and p_tasks an equal share of p_limit,
-- those first that were parked longest ago.  Returns how many.  Each gets the place in its queue that belongs to the time since when it
-- is unknown; a quarantined message is taken alone from now on.
-- A worker that knows these tasks calls this right before it dequeues, in the same transaction, for as many as it has
-- slots for: so no other worker that lacks them gets hold of them in between.  It wakes nobody.
-- Locks rows of pgqueue_message without waiting for any.
declare
    v_share integer := ceil(p_limit::numeric / greatest(1, cardinality(p_tasks)));
    v_unparked integer;
begin
    update pgqueue_message u
    set parked_at = null, in_line = u.alone_at is null,
        dequeue_at = case when u.alone_at is null then coalesce(u.unknown_since, u.parked_at) else 9223372036854775807 end,
        alone_at = case when u.alone_at is not null then coalesce(u.unknown_since, u.parked_at) end
    where u.ctid = any (array(
        select n.ctid
        from unnest(p_queues, p_tasks) as p (queue, task)
        cross join lateral (
            select m.ctid
            from pgqueue_message m
            where m.parked_at is not null and m.queue = p.queue and m.task = p.task and m.unlock_at is null
            order by m.queue, m.task, m.parked_at
            limit v_share
            for no key update skip locked
        ) as n
        limit p_limit
    ) || array(
        select n.ctid
        from unnest(p_ids) as i (id)
        cross join lateral (
            select m.ctid from pgqueue_message m
            where m.id = i.id and m.parked_at is not null and m.unlock_at is null
            for no key update skip locked
        ) as n
    ));
    get diagnostics v_unparked = row_count;
    return v_unparked;
end
$$\;
create or replace function pgqueue_message_unknown_fail(
    p_queues text[],
    p_tasks text[],
    p_seconds integer default 3600,
    p_limit integer default 100
) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Fails parked messages that no worker has known for p_seconds, of each pair of p_queues and p_tasks an equal share of
-- p_limit.  Returns how many.  Their error names the living workers of the queue, all of which lack the task or refuse
-- its arguments, and the last reason.
-- While a living worker of the queue may take a task, because it does not record it in pgqueue_worker.lacks or refuses,
-- none of its messages fails: that worker may only be busy.  A worker records 50 tasks: where it lacks more, the next ones follow
-- when the messages of these are gone.  A worker that has not been seen for a minute, and has not announced so long a
-- silence, is gone.  A message that was parked within the last minute has that time to be found by those who lack some
-- messages of the task, and not all.  Where no worker lives, nobody was asked, and nothing fails.
-- Locks rows of pgqueue_message without waiting for any; writes pgqueue_message and pgqueue_attempt.
declare
    v_since bigint := pgqueue_now() - p_seconds * 1000::bigint;
    v_parked bigint := pgqueue_now() - least(p_seconds, 60) * 1000::bigint;
    v_share integer := ceil(p_limit::numeric / greatest(1, cardinality(p_tasks)));
    v_pair record;
    v_message pgqueue_message;
    v_failed integer := 0;
begin
    for v_pair in
        select p.queue, p.task, a.names
        from unnest(p_queues, p_tasks) as p (queue, task)
        cross join lateral (
            select m.unknown_since from pgqueue_message m
            where m.parked_at is not null and m.queue = p.queue and m.task = p.task
            order by m.queue, m.task, m.unknown_since limit 1
        ) as h
        cross join lateral (
            select count(*) filter (where p.task <> all (coalesce(w.lacks || w.refuses, '{}'))) as others,
                   count(*) as workers,
                   left(string_agg(format('%s on %s', w.id, w.hostname), ', '), 2000) as names
            from pgqueue_worker w
            where w.tasks and (w.seen_at > pgqueue_clock() - interval '1 minute' or w.silent_until > pgqueue_now())
              and (w.queues is null or p.queue = any (w.queues)) and p.queue <> all (w.exclude_queues)
        ) as a
        where h.unknown_since <= v_since and a.workers > 0 and a.others = 0
    loop
        for v_message in
            delete from pgqueue_message d
            where d.ctid = any (array(
                select m.ctid
                from pgqueue_message m
                where m.parked_at is not null and m.queue = v_pair.queue and m.task = v_pair.task
                  and m.unknown_since <= v_since and m.parked_at <= v_parked
                  and m.unlock_at is null
                order by m.queue, m.task, m.unknown_since
                limit v_share
                for update skip locked
            ))
            returning d.*
        loop
            perform pgqueue_attempt_append(v_message, 'failed', true, jsonb_build_object(
                'class', 'django_pgqueue.exceptions.UnknownTask',
                'message', format(
                    'No worker has known the task %s for %s seconds. Living workers of the queue %s that lack it: %s. The last reason: %s',
                    v_message.task, p_seconds, v_pair.queue, v_pair.names, v_message.last_error)));
            v_failed := v_failed + 1;
        end loop;
    end loop;
    return v_failed;
end
$$\;
create or replace function pgqueue_worker_lacks(p_id text, p_lacks text[], p_refuses text[] default '{}') returns void
language sql
set search_path from current
as $$
    -- Records which tasks of parked messages a worker does not know (p_lacks), and of which ones that it knows it can take
    -- the arguments of no parked message (p_refuses); the first 50 of each are stored.  Unknown messages of all these do
    -- not wake it, and may fail while it lives (pgqueue_message_unknown_fail).  Workers of earlier versions leave
    -- messages of tasks that it refuses to it, because it may take the next one, and those of tasks that it lacks not.
    -- A worker calls this after pgqueue_worker_seen, for as long as it lacks anything and once more when it does not.
    -- Writes its row only where it changes.
    update pgqueue_worker w
    set lacks = n.lacks, refuses = n.refuses
    from (select nullif(p_lacks[:50], '{}') as lacks, nullif(p_refuses[:50], '{}') as refuses) as n
    where w.id = p_id and (w.lacks, w.refuses) is distinct from (n.lacks, n.refuses)
$$\;
create or replace function pgqueue_version_key(p_version text) returns text
language sql immutable
as $$
    -- Returns a text that sorts, by the values of its characters (collate "C"), as versions of a deploy do: runs of
    -- digits are compared as numbers, and everything else character by character.  So '2024.9.1' comes before
    -- '2024.10.1', and '2024.9' before both.
    select string_agg(case when r.run[1] ~ '^[0-9]' then lpad(ltrim(r.run[1], '0'), 100, '0') else r.run[1] end, '' order by r.place)
    from regexp_matches(left(p_version, 100), '[0-9]+|[^0-9]+', 'g') with ordinality as r (run, place)
$$\;
create or replace function pgqueue_worker_version(p_id text, p_version text) returns void
language sql
set search_path from current
as $$
    -- Records the version of the deploy that a worker runs.  While workers live that run the version of a message, or
    -- a later one (pgqueue_version_key), workers of earlier versions leave it to them.
    -- A worker calls this after pgqueue_worker_seen.  Writes its row only where it changes.
    update pgqueue_worker w set version = p_version
    where w.id = p_id and w.version is distinct from p_version
$$\;
drop function if exists pgqueue_worker_wake(text, boolean)\;
create or replace function pgqueue_worker_wake(
    p_queue text,
    p_tasks boolean default null,
    p_next boolean default false
) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
as $$
-- Wakes one sleeping consumer that serves p_queue, if there is one: a worker when p_tasks is true, a consumer of raw
-- messages when it is false, one of each when it is null.  The notification is delivered at the caller's commit.
-- p_next: a consumer calls this because it has no room any more.  The payload then ends with a line feed, and who is
-- woken asks for the open transactions: one of them may have read that the caller had room, and so notified nobody.
-- Wakes none while an awake consumer has room: that one polls every few milliseconds, and wakes the next when it has
-- taken as much as it could.  A consumer that has not been seen for two seconds may be dead, and does not count; until
-- then the sleepers, which poll every second, find the messages that it misses: none rests while it lives.
-- Workers that rest (silent_until) are all woken, up to a hundred: they poll no more, so the message may not depend on
-- one of them, which may have died.
-- Every step is a probe of a small index, whatever the number of workers.
-- Reads pgqueue_worker without a row lock and writes nothing, so enqueues never wait for each other here.  While the
-- workers are busy, none sleeps and none is notified: all commits of a database cluster that notify wait in one line.
-- Raises no error, whatever pgqueue_worker contains: a notification channel has less than 64 bytes and a payload less
-- than 8000, and a consumer that cannot be notified finds the message at its next poll.
declare
    v_now bigint;
    v_tasks boolean;
    v_sleeper text;
    v_payload text := left(p_queue, 255) || case when p_next then E'\n' else '' end;
begin
    if not exists (select from pgqueue_worker w where w.is_asleep) then  -- the usual case of a busy queue
        return;
    end if;
    v_now := pgqueue_now();
    foreach v_tasks in array case when p_tasks is null then array[false, true] else array[p_tasks] end loop
        if exists (
            select from pgqueue_worker w
            where w.has_room and w.asleep_until is null and w.tasks = v_tasks
              and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
              and w.seen_at between pgqueue_clock() - interval '2 seconds' and pgqueue_clock() + interval '2 seconds'
        ) then
            continue;
        end if;
        select w.id
        into v_sleeper
        from pgqueue_worker w
        where w.is_asleep and w.asleep_until > v_now and (w.silent_until > v_now) is not false
          and w.tasks = v_tasks and octet_length(w.id) < 56
          and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
        order by w.id limit 1;
        if not found then
            continue;
        end if;
        perform pg_notify('pgqueue_' || v_sleeper, v_payload);
        perform pg_notify('pgqueue_' || r.id, v_payload)
        from (
            select w.id from pgqueue_worker w
            where w.silent_until is not null and w.silent_until > v_now and w.asleep_until > v_now
              and w.tasks = v_tasks and octet_length(w.id) < 56
              and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
            order by w.id limit 100
        ) as r
        where r.id <> v_sleeper;
    end loop;
end
$$\;
create or replace function pgqueue_worker_wake_by(p_queue text, p_tasks boolean, p_at bigint) returns void
language plpgsql
set search_path from current
as $$
-- Wakes the workers that serve p_queue and would otherwise rest past p_at (epoch ms), when something in it becomes due:
-- they learn the time and rest until then.  Workers that do not rest (pgqueue_worker.silent_until) poll every second,
-- and learn it then: one of them is notified only if p_at may be before its next poll.  p_at of the transaction's time,
-- or before, is no time to come: somebody else tells them.
-- p_tasks: as in pgqueue_worker_wake.  The notifications are delivered at the caller's commit.
-- Reads pgqueue_worker without a row lock and writes nothing.  Nobody rests for more than an hour, so a message that is
-- due later does not even read it.
begin
    if p_at > pgqueue_now() + 3700000 then
        return;
    end if;
    if p_at > pgqueue_now(now()) and p_at < pgqueue_now() + 1200 then
        perform pgqueue_worker_wake(p_queue, p_tasks, true);
    end if;
    perform pg_notify('pgqueue_' || r.id, left(p_queue, 255))
    from (
        select w.id from pgqueue_worker w
        where w.silent_until is not null and w.asleep_until > greatest(p_at, pgqueue_now()) and octet_length(w.id) < 56
          and (p_tasks is null or w.tasks = p_tasks)
          and (w.queues is null or p_queue = any (w.queues)) and p_queue <> all (w.exclude_queues)
        limit 100
    ) as r;
end
$$\;
drop function if exists pgqueue_worker_seen(text, text[], text[], text, integer, integer, bigint, boolean, boolean, text)\;
create or replace function pgqueue_worker_seen(
    p_id text,
    p_queues text[],
    p_exclude_queues text[],
    p_hostname text,
    p_pid integer,
    p_slots integer,
    p_asleep_ms bigint default null,
    p_tasks boolean default true,
    p_has_room boolean default false,
    p_problem text default null,
    p_held boolean default false
) returns void
language plpgsql
set search_path from current
as $$
-- Records that a worker is alive, and registers it on the first call.  p_asleep_ms: it now waits for a notification on
-- the notification channel 'pgqueue_' || p_id, and calls this again within that time; null: it is awake.
-- p_tasks: it runs tasks; false: it takes raw messages.
-- p_has_room: it is awake and polls every few milliseconds.  A worker that sets this must take it back when it does so
-- no more, and wake the next one (pgqueue_worker_wake) when it took as much as it could.
-- p_problem: what the worker cannot do at present, for the people who operate it.
-- p_held: a session of the worker holds its advisory lock (pgqueue_worker_hold).  When no session holds it any more, and
-- the worker has not called this for some seconds, it is gone; without p_held the locks of its messages decide.
-- A worker that goes to sleep must poll once more after this call is committed: an enqueue that read the sleepers
-- before did not notify it.
begin
    if p_asleep_ms not between -1000000000000 and 1000000000000 then
        raise exception 'p_asleep_ms is %', p_asleep_ms
            using errcode = 'invalid_parameter_value', hint = 'It must be milliseconds, at most 1000000000000.';
    end if;
    insert into pgqueue_worker as w (id, queues, exclude_queues, hostname, pid, slots, tasks, has_room, problem, seen_at,
        asleep_until, server_started_at)
    values (p_id, p_queues, p_exclude_queues, p_hostname, p_pid, p_slots, p_tasks, p_has_room, left(p_problem, 500),
            pgqueue_clock(), pgqueue_now() + p_asleep_ms,
            case when p_held then pgqueue_to_epoch(pg_postmaster_start_time()) end)
    on conflict (id) do update
    set seen_at = excluded.seen_at, asleep_until = excluded.asleep_until, slots = excluded.slots,
        has_room = excluded.has_room, problem = excluded.problem, silent_until = null,
        server_started_at = excluded.server_started_at;
end
$$\;
create or replace function pgqueue_worker_gone(p_id text, p_silent_ms bigint default 600000) returns void
language sql
set search_path from current
as $$
    -- Deletes the row of a worker, and of all workers not seen for p_silent_ms and for the time that they had announced:
    -- those died without signing off.
    delete from pgqueue_worker w
    where w.id = p_id
       or w.seen_at < pgqueue_clock() - p_silent_ms * interval '1 millisecond'
          and (w.silent_until > pgqueue_now()) is not true
$$\;
drop function if exists pgqueue_message_create(jsonb, text, text, integer, bigint, text, jsonb, integer)\;
create or replace function pgqueue_message_create(
    p_content jsonb,
    p_queue text default 'default',
    p_task text default null,
    p_priority integer default 0,
    p_dequeue_at bigint default null,
    p_channel text default null,
    p_headers jsonb default null,
    p_max_attempts integer default 5,
    p_max_lost integer default null,
    p_version text default null
) returns bigint
language plpgsql
set search_path from current
as $$
-- Enqueues one message in the caller's transaction and returns its id, or null when p_channel is full or was released
-- (pgqueue_channel_room) and nothing was enqueued.  The message can be dequeued from p_dequeue_at on (epoch ms; null:
-- at once; historical or negative values go ahead of others of the same priority).  Without p_task it is a raw
-- message, for consumers of your own.  p_max_attempts null: no further attempt after an error.
-- p_max_lost: a task fails when its worker has died so many times in a row while it ran (null: 20 times).
-- p_version: the version of the deploy that enqueues it.  Workers of an earlier version (pgqueue_version_key) leave it
-- to others, while workers of this version or a later one live.
-- Writes pgqueue_message; a ready message wakes a sleeping worker, a later one those that would rest past its time.
declare
    v_id bigint;
    v_now bigint := pgqueue_now(now());  -- the transaction's time: its messages share it and are FIFO by id
begin
    if p_channel is not null and pgqueue_channel_room(p_channel) <= 0 then
        return null;
    end if;
    insert into pgqueue_message (content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost,
                                 version, created_at, in_line)
    values (case when pgqueue_message_is_large(p_content) then pgqueue_message_readable(p_content, 'content')
                 else p_content end,
            p_queue, p_task, p_priority, coalesce(p_dequeue_at, v_now), p_channel,
            case when pgqueue_message_is_large(p_headers) then pgqueue_message_readable(p_headers, 'headers')
                 else p_headers end,
            p_max_attempts, p_max_lost, p_version, pgqueue_clock(now()), coalesce(p_dequeue_at, v_now) <= v_now)
    returning id into v_id;
    if coalesce(p_dequeue_at, v_now) <= v_now then
        perform pgqueue_worker_wake(p_queue, p_task is not null);
    else
        perform pgqueue_worker_wake_by(p_queue, p_task is not null, p_dequeue_at);
    end if;
    return v_id;
end
$$\;
drop function if exists pgqueue_message_create_many(jsonb, text, text, integer, bigint, text, jsonb, integer)\;
drop function if exists pgqueue_message_create_many(jsonb)\;
create or replace function pgqueue_message_create_many(p_messages jsonb) returns setof bigint
language plpgsql
set search_path from current
as $$
-- Enqueues many messages with one statement and returns their ids, in the order of the array.  The id of a message that
-- its channel refuses (pgqueue_channel_room) is null.  p_messages is an array of objects with the parameters of
-- pgqueue_message_create as keys; only content is required:
--   [{"content": {"n": 1}, "queue": "mail", "priority": 5, "dequeue_at": 0}, ...]
-- Absent keys have the defaults of pgqueue_message_create; "max_attempts": null means, as there, no further attempt
-- after an error.  Objects may also have "unique_key", "on_conflict" and "until_started", as in
-- pgqueue_message_create_unique: these are enqueued one by one, in the order of their keys, so that two calls with the
-- same keys never deadlock.  For several such calls in one transaction see pgqueue_message_lock_keys.
-- Any other key is an error, and nothing is enqueued: otherwise "prio" would be ignored silently.
-- Writes pgqueue_message; wakes one sleeping worker for each queue that got a ready message.
declare
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
    v_queue text;
    v_item record;
    v_ids bigint[];
    v_rooms jsonb;  -- of channels that may become full: name, how many more they take
    v_kept integer[];  -- the positions of the accepted messages, where one may be refused
    v_messages jsonb := p_messages;
    v_keys constant text[] := array[
        'content', 'queue', 'task', 'priority', 'dequeue_at', 'channel', 'headers', 'max_attempts', 'max_lost',
        'version', 'unique_key', 'on_conflict', 'until_started'];
begin
    if jsonb_typeof(p_messages) <> 'array' then
        raise exception 'p_messages is not an array, but of type %', jsonb_typeof(p_messages)
            using errcode = 'invalid_parameter_value', hint = 'Put one message into an array, too: [{"content": ...}].';
    end if;
    select m.position, m.item into v_item
    from jsonb_array_elements(p_messages) with ordinality as m (item, position)
    where case jsonb_typeof(m.item) when 'object' then m.item - v_keys <> '{}' else true end
    limit 1;
    if found then
        raise exception 'message % of the array is not an object, or has unknown keys: %',
            v_item.position,
            case jsonb_typeof(v_item.item) when 'object' then (v_item.item - v_keys)::text else v_item.item::text end
            using errcode = 'invalid_parameter_value', hint = 'The keys are ' || array_to_string(v_keys, ', ') || '.';
    end if;

    if jsonb_path_exists(p_messages, '$[*].unique_key ? (@ != null)') then
        perform pgqueue_message_lock_keys(t.task)
        from (select distinct m.item ->> 'task' as task from jsonb_array_elements(p_messages) as m (item) order by 1) as t;
        for v_item in
            select m.item, m.position::integer
            from jsonb_array_elements(p_messages) with ordinality as m (item, position)
            order by m.item ->> 'unique_key' collate "C" nulls first, m.position
        loop
            v_ids[v_item.position] := pgqueue_message_create_item(v_item.item);
        end loop;
        return query select unnest(v_ids);
        return;
    end if;

    select jsonb_object_agg(c.channel, c.room) into v_rooms
    from (
        select n.channel, pgqueue_channel_room(n.channel) as room
        from (select distinct m.item ->> 'channel' from jsonb_array_elements(p_messages) as m (item)) as n (channel)
        where n.channel is not null
    ) as c
    where c.room is not null;
    if v_rooms is not null then
        v_kept := array(
            select k.position
            from (
                select m.position::integer, m.item ->> 'channel' as channel,
                       row_number() over (partition by m.item ->> 'channel' order by m.position) as place
                from jsonb_array_elements(p_messages) with ordinality as m (item, position)
            ) as k
            where (k.place <= (v_rooms ->> k.channel)::integer) is not false
            order by k.position);
        v_messages := (
            select coalesce(jsonb_agg(p_messages -> (k.position - 1) order by k.number), '[]')
            from unnest(v_kept) with ordinality as k (position, number));
    end if;

    with created as (
        insert into pgqueue_message (
            content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost, version, created_at,
            in_line)
        select case when pgqueue_message_is_large(m.item -> 'content')
                    then pgqueue_message_readable(m.item -> 'content', 'content')
                    else m.item -> 'content' end,
               coalesce(m.item ->> 'queue', 'default'),
               m.item ->> 'task',
               coalesce((m.item ->> 'priority')::integer, 0),
               coalesce((m.item ->> 'dequeue_at')::bigint, v_now),
               m.item ->> 'channel',
               case when pgqueue_message_is_large(m.item -> 'headers')
                    then pgqueue_message_readable(m.item -> 'headers', 'headers')
                    else nullif(m.item -> 'headers', 'null') end,
               case when m.item ? 'max_attempts' then (m.item ->> 'max_attempts')::integer else 5 end,
               (m.item ->> 'max_lost')::smallint,
               m.item ->> 'version',
               v_clock,
               coalesce((m.item ->> 'dequeue_at')::bigint, v_now) <= v_now
        from jsonb_array_elements(v_messages) with ordinality as m (item, position)
        order by m.position
        returning id
    )
    select array_agg(c.id) into v_ids from created c;
    if v_kept is null then
        return query select unnest(v_ids);
    else
        return query
        select v_ids[k.number]
        from generate_series(1, jsonb_array_length(p_messages)) as p (position)
        left join unnest(v_kept) with ordinality as k (position, number) on k.position = p.position
        order by p.position;
    end if;

    for v_queue in
        select distinct coalesce(m.item ->> 'queue', 'default')
        from jsonb_array_elements(v_messages) as m (item)
        where coalesce((m.item ->> 'dequeue_at')::bigint, v_now) <= v_now
    loop
        perform pgqueue_worker_wake(v_queue);
    end loop;
    if exists (select from pgqueue_worker w where w.silent_until is not null) then
        perform pgqueue_worker_wake_by(l.queue, null, l.dequeue_at)
        from (
            select coalesce(m.item ->> 'queue', 'default') as queue, min((m.item ->> 'dequeue_at')::bigint) as dequeue_at
            from jsonb_array_elements(v_messages) as m (item)
            where (m.item ->> 'dequeue_at')::bigint > v_now
            group by 1
        ) as l;
    end if;
end
$$\;

create or replace function pgqueue_message_create_many(
    p_contents jsonb,
    p_queue text,
    p_task text default null,
    p_priority integer default 0,
    p_dequeue_at bigint default null,
    p_channel text default null,
    p_headers jsonb default null,
    p_max_attempts integer default 5,
    p_max_lost integer default null,
    p_version text default null
) returns setof bigint
language plpgsql
set search_path from current
as $$
-- Enqueues a message for each content of the array p_contents, all with the same other parameters.  Returns their ids,
-- in the order of the array.  This is the fastest way to enqueue.  Where p_channel refuses messages
-- (pgqueue_channel_room), those are the last ones, and their ids are null.
declare
    v_room integer := case when p_channel is not null then pgqueue_channel_room(p_channel) end;
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
begin
    if jsonb_typeof(p_contents) <> 'array' then
        raise exception 'p_contents is not an array, but of type %', jsonb_typeof(p_contents)
            using errcode = 'invalid_parameter_value', hint = 'Put one content into an array, too: [...].';
    end if;
    if pgqueue_message_is_large(p_headers) then
        p_headers := pgqueue_message_readable(p_headers, 'headers');
    end if;
    return query
    insert into pgqueue_message (
        content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost, version, created_at,
        in_line)
    select case when pgqueue_message_is_large(c.content) then pgqueue_message_readable(c.content, 'content')
                else c.content end,
           p_queue, p_task, p_priority, coalesce(p_dequeue_at, v_now), p_channel, p_headers, p_max_attempts, p_max_lost,
           p_version, v_clock, coalesce(p_dequeue_at, v_now) <= v_now
    from jsonb_array_elements(p_contents) with ordinality as c (content, position)
    where v_room is null or c.position <= v_room
    order by c.position
    returning id;
    if found and coalesce(p_dequeue_at, v_now) <= v_now then
        perform pgqueue_worker_wake(p_queue, p_task is not null);
    elsif found then
        perform pgqueue_worker_wake_by(p_queue, p_task is not null, p_dequeue_at);
    end if;
    return query select null::bigint from generate_series(v_room + 1, jsonb_array_length(p_contents));
end
$$\;
drop function if exists pgqueue_message_create_unique(text, jsonb, text, text, integer, bigint, text, jsonb, integer, text, boolean)\;
create or replace function pgqueue_message_create_unique(
    p_unique_key text,
    p_content jsonb,
    p_queue text default 'default',
    p_task text default null,
    p_priority integer default 0,
    p_dequeue_at bigint default null,
    p_channel text default null,
    p_headers jsonb default null,
    p_max_attempts integer default 5,
    p_on_conflict text default 'keep',
    p_until_started boolean default false,
    p_max_lost integer default null,
    p_version text default null,
    out p_id bigint,
    out p_created boolean
)
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Enqueues one message unless another one holds p_unique_key.  Returns the id of the message that now holds the key,
-- and whether this call created it.  The key is held until the message leaves the queue or, with p_until_started,
-- until its first attempt begins.  A message that was asked to stop (pgqueue_message_request_cancel) has given its key
-- up, so that a message that is enqueued after that will run.  When a waiting message holds the key:
--   keep       nothing happens to it
--   replace    it gets all values of this call
--   debounce   it gets the dequeue_at of this call: it runs when no call has come for a while
-- With both it expires when this call says, unless it has begun before, as one that waits for a retry: that never expires.
-- Where that is so long after the enqueue, created_at is the time of this call.
-- Where no message holds the key but p_channel is full or was released (pgqueue_channel_room), p_id is null.
-- A running message is never changed, whatever p_on_conflict is, nor one of a durable task that has begun: its steps have
-- been done with the arguments that it has.  No conflict breaks the caller's transaction; only
-- another value of p_on_conflict is an error.
-- Waits for a transaction that is about to enqueue the same key: whether there is a conflict depends on its end.
-- Writes pgqueue_message; a message that this call makes ready wakes a sleeping worker.
declare
    v_now bigint := pgqueue_now(now());
    v_running boolean;
    v_attempt integer;
    v_queue text;
    v_expires constant text[] := array['expires_at', 'expires_us'];  -- headers
begin
    if p_on_conflict in ('keep', 'replace', 'debounce') is not true then
        raise 'p_on_conflict is %', quote_nullable(p_on_conflict)
            using errcode = 'invalid_parameter_value', hint = 'It must be keep, replace or debounce.';
    end if;
    if pgqueue_message_is_large(p_content) or pgqueue_message_is_large(p_headers) then
        p_content := pgqueue_message_readable(p_content, 'content');
        p_headers := pgqueue_message_readable(p_headers, 'headers');
    end if;
    for v_round in 1 .. 1000 loop
        if p_channel is not null and pgqueue_channel_room(p_channel) <= 0
           and not exists (
                select from pgqueue_message m
                where m.unique_key = p_unique_key and m.cancel_requested_at is null
                  and (m.attempt = 0 or not m.unique_until_started)
           ) then
            p_created := false;
            return;
        end if;
        insert into pgqueue_message as m (
            content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost, version, created_at,
            unique_key, unique_until_started, in_line)
        values (p_content, p_queue, p_task, p_priority, coalesce(p_dequeue_at, v_now), p_channel, p_headers,
                p_max_attempts, p_max_lost, p_version, pgqueue_clock(now()), p_unique_key, p_until_started,
                coalesce(p_dequeue_at, v_now) <= v_now)
        on conflict (unique_key)
            where unique_key is not null and cancel_requested_at is null and (attempt = 0 or not unique_until_started)
            do nothing
        returning m.id into p_id;
        if found then
            p_created := true;
            if coalesce(p_dequeue_at, v_now) <= v_now then
                perform pgqueue_worker_wake(p_queue, p_task is not null);
            else
                perform pgqueue_worker_wake_by(p_queue, p_task is not null, p_dequeue_at);
            end if;
            return;
        end if;

        p_created := false;
        select m.id, m.attempt,
               m.worker is not null or m.suspended_attempt is not null
               or (m.attempt > 0 and exists (select from pgqueue_step s where s.message_id = m.id))
        into p_id, v_attempt, v_running
        from pgqueue_message m
        where m.unique_key = p_unique_key and m.cancel_requested_at is null
          and (m.attempt = 0 or not m.unique_until_started);
        -- It may have ended, or given up the key, since the insert met it: then the key is free.
        continue when not found;
        if v_running or p_on_conflict = 'keep' then
            return;
        end if;

        -- Never locks a running message, even to look: its worker would wait until the caller's transaction ends.
        if p_on_conflict = 'debounce' then
            update pgqueue_message m
            set dequeue_at = case when m.alone_at is null then coalesce(p_dequeue_at, v_now) else 9223372036854775807 end,
                alone_at = case when m.alone_at is not null then coalesce(p_dequeue_at, v_now) end, parked_at = null,
                created_at = case when p_headers ? 'expires_us' then pgqueue_clock(now()) else m.created_at end,
                headers = case when m.headers ?| v_expires or p_headers ?| v_expires
                               then coalesce(m.headers, '{}') - v_expires
                                    || (select coalesce(jsonb_object_agg(h.key, h.value), '{}') from jsonb_each(p_headers) as h
                                        where h.key = any (v_expires))
                               else m.headers end,
                in_line = m.alone_at is null and coalesce(p_dequeue_at, v_now) <= v_now
            where m.unique_key = p_unique_key and m.cancel_requested_at is null
              and (m.attempt = 0 or not m.unique_until_started) and m.worker is null and m.attempt = v_attempt
            returning m.id, m.queue into p_id, v_queue;
        else
            update pgqueue_message m
            set content = p_content, queue = p_queue, task = p_task, priority = p_priority,
                dequeue_at = coalesce(p_dequeue_at, v_now), channel = p_channel, headers = p_headers,
                max_attempts = m.attempt + case when p_max_attempts < 2000000000 - m.attempt then p_max_attempts
                                                when p_max_attempts is not null then 2000000000 - m.attempt end,  -- all of them, whatever it has used before
                in_line = coalesce(p_dequeue_at, v_now) <= v_now, unique_until_started = p_until_started, lost = 0,
                max_lost = p_max_lost, version = p_version, alone_at = null, unknown_since = null, parked_at = null,
                state = null, created_at = case when p_headers ? 'expires_us' then pgqueue_clock(now()) else m.created_at end,
                last_error = null, progress = null
            where m.unique_key = p_unique_key and m.cancel_requested_at is null
              and (m.attempt = 0 or not m.unique_until_started) and m.worker is null and m.attempt = v_attempt
            returning m.id, m.queue into p_id, v_queue;
        end if;
        continue when not found;  -- it has begun or ended since
        if coalesce(p_dequeue_at, v_now) <= v_now then
            perform pgqueue_worker_wake(v_queue);
        else
            perform pgqueue_worker_wake_by(v_queue, null, p_dequeue_at);
        end if;
        return;
    end loop;
    raise exception 'row-level security hides the message that holds the unique key %', quote_literal(left(p_unique_key, 100))
        using errcode = 'insufficient_privilege',
              hint = 'Use another key for each tenant, or let the role bypass row-level security of pgqueue_message.';
end
$$\;
create or replace function pgqueue_message_create_item(p_message jsonb) returns bigint
language sql
set search_path from current
as $$
    -- Enqueues one object of the array that pgqueue_message_create_many takes, and returns the id of its message.
    select case
        when p_message ->> 'unique_key' is null then
            pgqueue_message_create(
                p_message -> 'content',
                coalesce(p_message ->> 'queue', 'default'),
                p_message ->> 'task',
                coalesce((p_message ->> 'priority')::integer, 0),
                (p_message ->> 'dequeue_at')::bigint,
                p_message ->> 'channel',
                nullif(p_message -> 'headers', 'null'),
                case when p_message ? 'max_attempts' then (p_message ->> 'max_attempts')::integer else 5 end,
                (p_message ->> 'max_lost')::integer,
                p_message ->> 'version')
        else (
            select u.p_id from pgqueue_message_create_unique(
                p_message ->> 'unique_key',
                p_message -> 'content',
                coalesce(p_message ->> 'queue', 'default'),
                p_message ->> 'task',
                coalesce((p_message ->> 'priority')::integer, 0),
                (p_message ->> 'dequeue_at')::bigint,
                p_message ->> 'channel',
                nullif(p_message -> 'headers', 'null'),
                case when p_message ? 'max_attempts' then (p_message ->> 'max_attempts')::integer else 5 end,
                coalesce(p_message ->> 'on_conflict', 'keep'),
                coalesce((p_message ->> 'until_started')::boolean, false),
                (p_message ->> 'max_lost')::integer,
                p_message ->> 'version') as u)
    end
$$\;
drop function if exists pgqueue_message_create_after(bigint[], jsonb, text, text, integer, bigint, text, jsonb, integer, text)\;
create or replace function pgqueue_message_create_after(
    p_after_ids bigint[],
    p_content jsonb,
    p_queue text default 'default',
    p_task text default null,
    p_priority integer default 0,
    p_dequeue_at bigint default null,
    p_channel text default null,
    p_headers jsonb default null,
    p_max_attempts integer default 5,
    p_policy text default 'finished',
    p_max_lost integer default null,
    p_version text default null,
    p_keep_results boolean default false
) returns bigint
language plpgsql
set search_path from current
as $$
-- Enqueues one message that waits until the messages p_after_ids have left the queue.  Returns its id, or null when
-- p_channel is full or was released (pgqueue_channel_room) and nothing was enqueued.
-- p_policy defines what happens when one of them did not succeed:
--   finished    nothing: the message runs all the same
--   succeeded   the message is cancelled
-- p_keep_results: how those messages end is kept for this one, however short the history is (pgqueue_child.by_after).
-- pgqueue_child_outcomes returns it, also when the message is enqueued again from the history.
-- Those messages must have been committed, or be of this transaction; one that is not in the queue counts as ended.
-- There is no counter: when a message has ended, pgqueue_message_settle checks whether any of them is left.  So
-- there is no row that all of them would have to write, and nothing that a crash could leave wrong.
declare
    v_max constant integer := 100000;
    v_id bigint;
    v_gone bigint[];
begin
    if cardinality(p_after_ids) > v_max then
        raise exception 'p_after_ids has % ids', cardinality(p_after_ids)
            using errcode = 'program_limit_exceeded',
                  hint = format('It may have %s: let messages between them wait for a part each.', v_max);
    end if;
    with given as (
        select array(select distinct a.id from unnest(p_after_ids) as a (id) where a.id is not null order by 1) as ids,
               pgqueue_now(now()) as now
    ),
    created as (
        insert into pgqueue_message (
            content, queue, task, priority, dequeue_at, channel, headers, max_attempts, max_lost, version, created_at,
            after_ids, after_policy, check_at, checks, awaited_id, in_line)
        select case when pgqueue_message_is_large(p_content) then pgqueue_message_readable(p_content, 'content')
                    else p_content end,
               p_queue, p_task, p_priority, 9223372036854775807, p_channel,
               case when pgqueue_message_is_large(p_headers) then pgqueue_message_readable(p_headers, 'headers')
                    else p_headers end,
               p_max_attempts, p_max_lost, p_version, pgqueue_clock(now()), g.ids, p_policy,
               greatest(p_dequeue_at, g.now), 0,
               case when coalesce(p_dequeue_at, g.now) <= g.now then g.ids[cardinality(g.ids)] end,
               false
        from given g
        where p_channel is null or coalesce(pgqueue_channel_room(p_channel), 1) > 0
        returning id, awaited_id, check_at
    ),
    told as (  -- no later end will report a message that has ended already
        insert into pgqueue_ended (message_id, look_at)
        select c.awaited_id, g.now from created c, given g
        where c.awaited_id is not null and (select true from pgqueue_message d where d.id = c.awaited_id) is null
    ),
    woken as (  -- a worker that rests would not come to its check
        select c.id, pgqueue_worker_wake_by(p_queue, null, c.check_at) from created c
    )
    select w.id into v_id from woken w;
    if p_keep_results and v_id is not null then
        with wanted as (
            insert into pgqueue_child (message_id, parent_id, created_at, cancels, by_after)
            select a.id, v_id, pgqueue_clock(), false, true
            from (select distinct i.id from unnest(p_after_ids) as i (id) where i.id is not null) as a
            returning message_id
        )
        select array_agg(w.message_id) into v_gone from wanted w
        where (select true from pgqueue_message d where d.id = w.message_id) is null;
        -- Apart, because each statement that names the history needs a lock for each day, and its indexes, until the
        -- caller's transaction ends.
        if v_gone is not null then
            update pgqueue_child c
            set status = a.status, error_class = a.error_class, error_message = a.error_message, result = a.result
            from unnest(v_gone) as i (id)
            cross join lateral (  -- what has ended already may be older than the history that is looked at later
                select h.status, h.error_class, h.error_message, h.result
                from pgqueue_attempt h
                where h.message_id = i.id and h.final
                order by h.id + 0 desc  -- not by the index of ids, from the newest of all on
                limit 1
            ) as a
            where c.message_id = i.id and c.parent_id = v_id;
        end if;
    end if;
    return v_id;
end
$$\;
create or replace function pgqueue_message_lose(p_message pgqueue_message, p_reason text, p_blamed boolean) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Ends an attempt whose worker went away, and records it as lost.  The functions that detect this call it; the caller
-- has locked the row, and p_message is that row.
-- The task made no error: the attempt uses none of max_attempts up, and the message is ready again.  A message that was
-- lost max_lost times (null: 20), without an attempt in between that ended in order, fails, because it would go on
-- killing workers.
-- p_blamed: the worker died while it ran the message, which may be the cause.  Such a task is quarantined: from now on
-- pgqueue_quarantine_dequeue takes it, for a worker that holds nothing else.  False: the reason is not known, and a task
-- that was lost twice in a row is quarantined too.  Null: the worker stopped, and the message is not to blame; it counts
-- as one of the two all the same.
-- For a raw message the queue does not know whether its consumer died or gave up.  There a lost attempt counts like any
-- other, fails the message with the last of max_attempts (the 5th loss where it has none), and quarantines nothing.
-- Writes pgqueue_message and pgqueue_attempt.
declare
    v_raw boolean := p_message.task is null;
    v_lost integer := least(p_message.lost + 1, 32767);  -- a raw message may have more attempts than that
    v_used integer := v_lost;
    v_last integer := coalesce(p_message.max_lost, 20);
    v_alone boolean := not v_raw and (
        p_message.alone_at is not null or p_blamed is not null and (p_blamed or v_lost > 1));
    v_error jsonb;
begin
    if v_raw then
        v_last := coalesce(p_message.max_attempts, 5);
        v_used := case when p_message.max_attempts is null then v_lost else p_message.attempt end;
    end if;
    v_error := jsonb_build_object(
        'class', 'django_pgqueue.exceptions.AttemptLost',
        'message', format('%s (%s %s of %s)', p_reason, case when v_raw then 'attempt' else 'loss' end,
                          v_used, v_last));
    if p_message.cancel_requested_at is not null or v_used >= v_last then
        delete from pgqueue_message m where m.id = p_message.id;
        perform pgqueue_attempt_append(
            p_message, case when p_message.cancel_requested_at is null then 'failed' else 'cancelled' end, true, v_error);
        if p_message.cancel_requested_at is not null then
            perform pgqueue_child_cancel(array[p_message.id]);
        end if;
        return;
    end if;
    update pgqueue_message m
    set unlock_at = null, locked_at = null, worker = null, progress = null, last_error = v_error ->> 'message',
        lost = v_lost, unknown_since = null,
        max_attempts = m.max_attempts + case when not v_raw and m.max_attempts < 2000000000 then 1 else 0 end,
        alone_at = case when v_alone then m.dequeue_at end,
        dequeue_at = case when v_alone then 9223372036854775807 else m.dequeue_at end,
        in_line = not v_alone
    where m.id = p_message.id;
    perform pgqueue_attempt_append(p_message, 'lost', false, v_error);
end
$$\;
create or replace function pgqueue_message_abandon(p_ids bigint[], p_attempts integer[], p_worker text) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives up attempts that have begun, because the caller stops: they are lost (pgqueue_message_lose), and the messages
-- are ready again, unless this was the last loss, or they were asked to stop.  They are not to blame.  Returns their ids.
-- Locks rows of pgqueue_message in the order of ids; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
begin
    for v_message in
        select m.* from pgqueue_message m
        where m.id = any (p_ids)
          and m.worker = p_worker
          and m.attempt = p_attempts[array_position(p_ids, m.id)]
        order by m.id
        for no key update  -- the transaction of an atomic task or step may hold it for key share
    loop
        perform pgqueue_message_lose(v_message, format('worker %s stopped while it ran', p_worker), null);
        return next v_message.id;
    end loop;
end
$$\;
drop function if exists pgqueue_schedule_fire(text, bigint[], bigint, bigint, text, text, boolean, text)\;
create or replace function pgqueue_schedule_fire(
    p_name text,
    p_slots bigint[],
    p_expected_at bigint,
    p_next_at bigint,
    p_unique_key text default null,
    p_on_conflict text default 'keep',
    p_until_started boolean default false,
    p_channel text default null,
    p_max_lost integer default null,
    p_version text default null,
    p_headers jsonb default null
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set lock_timeout = '50ms'
as $$
-- Enqueues a message for each unused slot (epoch ms) of a schedule, and returns the ids of the new messages.  next_at
-- moves from p_expected_at to p_next_at; when it is not p_expected_at any more, another worker was faster and nothing
-- happens.  With p_unique_key the messages go through pgqueue_message_create_unique: a slot whose message meets one
-- that holds the key is used, and counts for that one.  A slot whose message p_channel refuses is used as well.
-- p_max_lost, p_version: as in pgqueue_message_create.  p_headers: more headers of each message.
-- A past slot is enqueued with the present time as dequeue_at: its own time would put it ahead of all that was enqueued
-- since.  The headers contain the slot.
-- Any number of workers may call this at the same time: each (name, slot) is enqueued at most once, by the primary key
-- of pgqueue_schedule_slot, even if next_at is put back by hand.  Slots are remembered for 90 days, and of an interval
-- the last 10,000 at most: do not put next_at further back.
-- Locks one row of pgqueue_schedule, without waiting for it; writes pgqueue_schedule_slot and pgqueue_message.  Waits
-- at most lock_timeout for a key that another transaction is about to take; then nothing happens, and the next call
-- fires the slots.
declare
    v_schedule pgqueue_schedule;
    v_slot bigint;
    v_at bigint;
    v_message_id bigint;
    v_created boolean;
    v_ids bigint[] := '{}';
    v_kept_ms bigint;
begin
    select s.* into v_schedule
    from pgqueue_schedule s
    where s.name = p_name and s.next_at = p_expected_at and s.paused_at is null
    for update skip locked;
    if not found then
        return;
    end if;

    begin
        foreach v_slot in array p_slots loop
            insert into pgqueue_schedule_slot (name, slot_at) values (p_name, v_slot) on conflict do nothing;
            continue when not found;
            v_at := greatest(v_slot, pgqueue_now(now()));
            if p_unique_key is null then
                v_created := true;
                v_message_id := pgqueue_message_create(
                    v_schedule.content, v_schedule.queue, v_schedule.task, v_schedule.priority, v_at,
                    p_channel => p_channel, p_headers => coalesce(p_headers, '{}') || jsonb_build_object('schedule', p_name, 'slot', v_slot),
                    p_max_attempts => v_schedule.max_attempts, p_max_lost => p_max_lost, p_version => p_version);
            else
                select u.p_id, u.p_created into v_message_id, v_created
                from pgqueue_message_create_unique(
                    p_unique_key, v_schedule.content, v_schedule.queue, v_schedule.task, v_schedule.priority, v_at,
                    p_channel => p_channel, p_headers => coalesce(p_headers, '{}') || jsonb_build_object('schedule', p_name, 'slot', v_slot),
                    p_max_attempts => v_schedule.max_attempts, p_on_conflict => p_on_conflict,
                    p_until_started => p_until_started, p_max_lost => p_max_lost, p_version => p_version) as u;
            end if;
            update pgqueue_schedule_slot l set message_id = v_message_id where l.name = p_name and l.slot_at = v_slot;
            if v_created and v_message_id is not null then
                v_ids := v_ids || v_message_id;
            end if;
        end loop;
    exception
        when lock_not_available then
            return;
    end;

    update pgqueue_schedule s set next_at = p_next_at where s.name = p_name;
    -- Relative to p_expected_at and not to the clock, because catching up may be about old slots.
    v_kept_ms := 10000 * least(coalesce(v_schedule.interval_ms, 777600), 777600);
    delete from pgqueue_schedule_slot l
    where l.name = p_name and l.slot_at < greatest(p_expected_at, v_kept_ms - 1 - 9223372036854775807) - v_kept_ms;
    return query select unnest(v_ids);
end
$$\;
create or replace function pgqueue_lane_dequeue(
    p_queues text[],
    p_limit integer,
    p_lock_ms bigint,
    p_worker text,
    p_tasks boolean,
    p_channel text default null,
    p_exclude_queues text[] default '{}'
) returns setof pgqueue_message
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Takes up to p_limit ready messages of channels and locks them.  Lanes take turns: the lane whose last turn is longest
-- ago comes first, gives up to five messages a turn (more where few lanes are armed), and goes back to the end of the
-- line.  Inside a lane the order is the same as without channels: highest priority first, then dequeue_at, then id.
-- p_queues null: all queues, except p_exclude_queues.  With p_channel only this channel.
-- pgqueue_message_dequeue calls this; consumers do not.  Never waits: it skips locked lanes and channels.
-- Plans: a condition that names its rows (... = any (v_channels)) becomes index probes and a hash; without nested loops
-- the planner cannot read all channels instead.  Where a loop is wanted, the join is lateral.
declare
    v_now bigint := pgqueue_now();
    v_clock timestamptz := pgqueue_clock();
    v_left integer := p_limit;
    v_turn integer := 5;
    v_turns integer;
    v_passed boolean;
    v_taken integer;
    v_room integer;
    v_channels text[];
    v_queues text[];
    v_priorities integer[];
    v_rooms integer[];
    v_released text[];
    v_turned timestamptz;
    v_served text[];  -- null: all
    v_further boolean := false;
    v_line refcursor;
    v_next record;
    v_lane record;
begin
    if p_queues is not null then
        v_served := array(
            select q.queue from unnest(p_queues) as q (queue) where q.queue <> all (p_exclude_queues) order by random());
    elsif p_exclude_queues <> '{}' then
        -- The queues of the first lanes in line, which is enough unless those are excluded or locked by other sessions.
        v_served := array(
            select f.queue
            from (select d.queue from pgqueue_lane d where d.raw = (not p_tasks) and d.next_at <= v_now
                  order by d.next_at, d.turned_at nulls first limit 1000) as f
            where f.queue <> all (p_exclude_queues)
            group by f.queue
            order by random());
        v_further := true;
    end if;

    loop
        v_channels := '{}';
        v_queues := '{}';
        v_priorities := '{}';
        v_rooms := '{}';
        v_released := '{}';
        v_turns := 0;
        v_passed := false;
        -- The line, read row by row, so that no lane is locked without having its turn.
        if v_served is null then
            open v_line for
                select d.channel, d.queue from pgqueue_lane d
                where d.raw = (not p_tasks) and d.next_at <= v_now
                order by d.next_at, d.turned_at nulls first
                for no key update skip locked;
        else
            open v_line for
                select l.channel, q.queue
                from unnest(v_served) as q (queue)
                cross join lateral (
                    select d.channel from pgqueue_lane d
                    where d.queue = q.queue and d.raw = (not p_tasks) and d.next_at <= v_now
                      and d.channel = coalesce(p_channel, d.channel)
                    order by d.next_at, d.turned_at nulls first
                    limit case when p_channel is not null then 1 end
                    for no key update skip locked
                ) as l;
        end if;
        loop
            fetch v_line into v_next;
            exit when not found;
            select v_next.channel as channel, v_next.queue as queue, c.*, head.priority, head.dequeue_at
            into v_lane
            from (
                select d.max_concurrency - d.running as room, d.release_interval_ms, d.release_at, d.released_at
                from pgqueue_channel d
                where d.name = v_next.channel
                for no key update skip locked
            ) as c
            left join lateral (
                select m.priority, m.dequeue_at from pgqueue_message m
                where m.channel = v_next.channel and m.queue = v_next.queue and (m.task is null) = (not p_tasks)
                  and m.unlock_at is null
                order by m.priority desc, m.dequeue_at, m.id limit 1
            ) as head on true;
            continue when not found;
            -- A channel with lanes in several queues has one turn a round, because its lanes share its limits.
            if v_lane.channel = any (v_channels) then
                v_passed := true;
                continue;
            end if;
            if v_lane.dequeue_at > v_now then
                v_lane.priority := (
                    with recursive head as (
                        select v_lane.priority::integer as priority, v_lane.dequeue_at as dequeue_at
                        union all
                        (select n.priority::integer, n.dequeue_at from head h
                         cross join lateral (
                            select m.priority, m.dequeue_at from pgqueue_message m
                            where m.channel = v_lane.channel and m.queue = v_lane.queue
                              and (m.task is null) = (not p_tasks) and m.unlock_at is null and m.priority < h.priority
                            order by m.priority desc, m.dequeue_at, m.id limit 1
                         ) as n
                         where h.dequeue_at > v_now)
                    )
                    select h.priority from head h where h.dequeue_at <= v_now);
            end if;
            v_room := greatest(0, case
                when v_lane.priority is null or v_lane.release_at > v_now then 0
                when v_lane.release_interval_ms > 0 then least(1, coalesce(v_lane.room, 1))
                else coalesce(v_lane.room, p_limit)  -- negative, where the limit was lowered below what runs
            end);
            if v_lane.released_at is not null then
                v_released := v_released || v_lane.channel;
            end if;
            v_channels := v_channels || v_lane.channel;
            v_queues := v_queues || v_lane.queue;
            v_priorities := v_priorities || coalesce(v_lane.priority, 0);
            v_rooms := v_rooms || v_room;
            v_turns := v_turns + least(v_room, v_turn);
            exit when v_turns >= v_left;
        end loop;
        close v_line;
        if v_channels = '{}' and v_further then
            v_further := false;
            v_served := array(
                with recursive present as (
                    (select d.queue from pgqueue_lane d where d.next_at is not null order by d.queue limit 1)
                    union all
                    select n.queue
                    from present p
                    cross join lateral (
                        select d.queue from pgqueue_lane d where d.next_at is not null and d.queue > p.queue
                        order by d.queue limit 1
                    ) as n
                )
                select p.queue from present p where p.queue <> all (p_exclude_queues) order by random());
            continue;
        end if;
        exit when v_channels = '{}';
        v_further := false;
        if v_turns < v_left then  -- no other lane is in line
            v_turn := greatest(v_turn, ceil(v_left::numeric / cardinality(v_channels)));
        end if;

        return query
        with taken as (
            update pgqueue_message u
            set unlock_at = v_now + p_lock_ms, locked_at = v_clock, worker = p_worker,
                attempt = least(u.attempt, 1999999999) + 1
            where u.id = any (array(
                select n.id
                from unnest(v_channels, v_queues, v_priorities, v_rooms) as k (channel, queue, priority, room)
                cross join lateral (
                    select m.id from pgqueue_message m
                    where m.channel = k.channel and m.queue = k.queue and (m.task is null) = (not p_tasks)
                      and m.unlock_at is null and m.priority = k.priority and m.dequeue_at <= v_now
                    order by m.dequeue_at, m.id
                    limit least(k.room, v_turn)
                    for no key update skip locked
                ) as n
                where k.room > 0
                limit v_left
            ))
            returning u.*
        ), counts as (
            select t.channel, count(*)::integer as taken from taken t group by t.channel
        ), counted as (
            update pgqueue_channel c
            set running = least(c.running + n.taken, 1000000000),
                release_at = case when c.release_interval_ms > 0 then v_now + c.release_interval_ms end
            from counts n where n.channel = c.name and c.name = any (v_channels)
        )
        select * from taken t order by t.priority desc, t.dequeue_at, t.id;
        get diagnostics v_taken = row_count;
        v_left := v_left - v_taken;

        v_turned := clock_timestamp();  -- also where the clock of the queue stands still
        -- The next turn: at once where more is due, else when the first message is due, else when an attempt has ended.
        update pgqueue_lane l
        set turned_at = v_turned + k.place * interval '1 microsecond',
            parked = (c.running >= c.max_concurrency) is true,
            next_at = case
                when c.running >= c.max_concurrency or head.dequeue_at is null then null
                when head.dequeue_at <= v_now then greatest(v_now, c.release_at)
                else greatest(c.release_at, (
                    with recursive later as (
                        select head.priority::integer as priority, head.dequeue_at
                        union all
                        (select n.priority::integer, n.dequeue_at from later h
                         cross join lateral (
                            select m.priority, m.dequeue_at from pgqueue_message m
                            where m.channel = k.channel and m.queue = k.queue and (m.task is null) = (not p_tasks)
                              and m.unlock_at is null and m.priority < h.priority
                            order by m.priority desc, m.dequeue_at, m.id limit 1
                         ) as n)
                    )
                    select greatest(v_now, min(h.dequeue_at)) from later h))
            end
        from unnest(v_channels, v_queues) with ordinality as k (channel, queue, place)
        join pgqueue_channel c on c.name = k.channel
        left join lateral (
            select m.priority, m.dequeue_at from pgqueue_message m
            where (c.running >= c.max_concurrency) is not true
              and m.channel = k.channel and m.queue = k.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
            order by m.priority desc, m.dequeue_at, m.id limit 1
        ) as head on true
        where l.channel = k.channel and l.queue = k.queue and l.raw = (not p_tasks)
          and l.channel = any (v_channels) and c.name = any (v_channels);

        if v_released <> '{}' then
            perform pgqueue_channel_prune(c.name) from pgqueue_channel c where c.name = any (v_released) and c.running = 0;
        end if;
        -- A round of lanes without messages is not the last one where it skipped other lanes of their channels: it has
        -- taken its lanes out of the line, and the next round begins with the skipped ones.
        exit when v_left <= 0 or v_taken = 0 and (v_turns > 0 or not v_passed);
    end loop;
end
$$\;
create or replace function pgqueue_lane_dequeue_apart(
    p_queues text[],
    p_limit integer,
    p_lock_ms bigint,
    p_worker text,
    p_tasks boolean,
    p_exclude_queues text[] default '{}'
) returns setof pgqueue_message
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Takes messages of channels as pgqueue_lane_dequeue does, for a transaction that goes on: its locks last until its
-- end, and no other consumer gets messages of those channels meanwhile.  So it takes lanes one by one: those in line
-- and those with arrivals, in any order.  It moves the arrivals of that channel alone (pgqueue_lane_arm), and when it
-- finds nothing to take, a subtransaction gives all locks of the channel back.  It tries a hundred lanes of each kind.
-- pgqueue_message_dequeue calls this; consumers do not.
declare
    v_now bigint := pgqueue_now();
    v_left integer := p_limit;
    v_taken integer;
    v_lane record;
begin
    for v_lane in
        select c.channel, c.queue
        from (
            (select d.channel, d.queue
             from pgqueue_lane d
             where p_queues is null and d.raw = (not p_tasks) and d.next_at <= v_now and d.queue <> all (p_exclude_queues)
             order by d.next_at, d.turned_at nulls first
             limit 100)
            union all
            (select l.channel, q.queue
             from (select u.queue from unnest(p_queues) as u (queue) order by random()) as q
             cross join lateral (
                select d.channel from pgqueue_lane d
                where d.queue = q.queue and d.raw = (not p_tasks) and d.next_at <= v_now
                order by d.next_at, d.turned_at nulls first
                limit 100
             ) as l
             where q.queue <> all (p_exclude_queues)
             limit 100)
            union all
            (with recursive present as (
                (select a.channel, a.queue, a.raw from pgqueue_arrival a order by a.channel, a.queue, a.raw limit 1)
                union all
                select n.channel, n.queue, n.raw
                from present p
                cross join lateral (
                    select a.channel, a.queue, a.raw from pgqueue_arrival a
                    where (a.channel, a.queue, a.raw) > (p.channel, p.queue, p.raw)
                    order by a.channel, a.queue, a.raw limit 1
                ) as n
             )
             select p.channel, p.queue
             from present p
             where (p_queues is null or p.queue = any (p_queues)) and p.queue <> all (p_exclude_queues)
               and p.raw = (not p_tasks)
             limit 100)
        ) as c (channel, queue)
        order by random()
    loop
        begin
            perform pgqueue_lane_arm(p_channel => v_lane.channel);
            return query
            select * from pgqueue_lane_dequeue(
                array[v_lane.queue], v_left, p_lock_ms, p_worker, p_tasks, p_channel => v_lane.channel)
            where (select true from pgqueue_message where false) is null;  -- as in pgqueue_message_dequeue
            get diagnostics v_taken = row_count;
            if v_taken = 0 then
                raise exception using errcode = 'PQ001', message = 'nothing to take';
            end if;
        exception
            when sqlstate 'PQ001' then null;
        end;
        v_left := v_left - v_taken;
        exit when v_left <= 0;
    end loop;
end
$$\;
create or replace function pgqueue_message_dequeue(
    p_queues text[] default null,
    p_limit integer default 1,
    p_lock_ms bigint default 60000,
    p_worker text default null,
    p_exclude_queues text[] default '{}',
    p_tasks boolean default false,
    p_floor_queues text[] default null,
    p_floor_priorities integer[] default null,
    p_floor_dequeue_ats bigint[] default null,
    p_floor_ids bigint[] default null,
    p_brief boolean default true
) returns setof pgqueue_message
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Takes up to p_limit ready messages and locks them for p_lock_ms, from 1 to 1000000000000: highest priority
-- first, then dequeue_at, then id.
-- Returns the rows as they are now; the functions that end attempts need (id, attempt, worker) as the token.
--   p_queues          the queues to serve; null: every queue, except p_exclude_queues.  Paused ones (pgqueue_queue) are
--                     skipped.  Queues that have messages of the same priority share the batch evenly: a flood in one
--                     does not starve another.  Where there are more queues than places in the batch, the next call of
--                     the session continues behind the last one of them.
--   p_worker          the name of the lock's holder; null: a name that stands for this database session.
--   p_tasks           true: messages that name a task (what qworker runs); false: raw messages.
--   p_floor_...       four arrays of equal length: only look in these (queue, priority) pairs, in this order, and only
--                     from (dequeue_at, id) on.  For consumers whose probes are slow because a long transaction keeps
--                     the entries of ended messages at the head of the index: they start behind those.
--   p_brief           true: the transaction ends right after this call.  Pass false in one that goes on: it holds
--                     what it takes, and the turns of those channels, and leaves to others what they need not wait
--                     for.
-- Messages of channels (pgqueue_channel) wait in lanes, which take turns (pgqueue_lane_dequeue).  Where both they and
-- messages without a channel are ready, each get half of p_limit.
-- Scheduled messages come into line when they are due: 500 at each call, the highest priorities first, and within a
-- priority those that have been due for longest, whatever their queues where all are served.  So the line
-- (pgqueue_message_ready_ix) contains hardly any message that is not due, and no dequeue walks over scheduled messages
-- that are spread over many queues.
-- Every step is a probe of that index: one for each priority, one for each queue that gets a share, and one for each row
-- taken, whatever the backlog, the schedule and the number of queues.  The id = any (array (...)) form and the settings
-- above pin that plan; a join form that was planned on an empty table goes on scanning when the table has filled up.
-- The claim goes by id: by ctid it would miss a row that changed after its snapshot, and leave it locked.
-- Locks rows of pgqueue_message without waiting for any; calls pgqueue_message_expire when a lock ran out,
-- and pgqueue_message_settle when a message has ended that others wait for.
declare
    v_clock timestamptz := pgqueue_clock();
    v_now bigint := floor(extract(epoch from v_clock) * 1000);
    v_worker text := coalesce(p_worker, pgqueue_session_worker());
    v_expired boolean;
    v_arrived boolean;
    v_ended boolean;
    v_scheduled boolean;  -- whether any message may come into line
    v_due integer[];  -- the priorities of the messages that do
    v_exclude_queues text[];
    v_paused text[];
    v_queue text;
    v_present text[];  -- queues that have something due at v_priority
    v_tidied boolean := false;
    v_early text[];  -- queues whose head is not due
    v_page integer;  -- how many queues one step looks at; null: the next priority is still to be found
    v_last boolean;  -- whether no queue follows them
    v_from text;  -- the queue behind which the page begins
    v_turn text;  -- the queue behind which the round began; null: all queues are in one page
    v_wrapped boolean;  -- whether the round has passed the last queue and continued with the first
    v_alone boolean;
    v_giving text[];  -- the queues that gave messages in this round
    v_served text;
    v_setting text := case when p_tasks then 'pgqueue.turn_of_tasks' else 'pgqueue.turn_of_raw' end;
    v_priority integer := 32767;
    v_left integer := p_limit;
    v_share integer;
    v_taken integer;
    v_again boolean;
    v_step integer := 0;
    v_lanes boolean;  -- whether lanes may have more messages
    v_share_of_lanes integer := floor(p_limit / 2.0 + random());
    v_floor_dequeue_at bigint := -9223372036854775808;
    v_floor_id bigint := -9223372036854775808;
begin
    if (p_lock_ms between 1 and 1000000000000) is not true then
        raise exception 'p_lock_ms is %', coalesce(p_lock_ms::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'It must be milliseconds, from 1 to 1000000000000.';
    end if;
    -- One statement asks all questions first, because a worker that was woken for a single message waits for it.
    select exists (select from pgqueue_message m where m.unlock_at is not null and m.unlock_at <= v_now),
           exists (select from pgqueue_arrival),
           exists (select from pgqueue_ended e where e.look_at <= v_now or e.look_at > v_now + 60000),  -- as in settle
           exists (select from pgqueue_lane),
           p_floor_queues is null and (
               select true
               from pgqueue_message m
               where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
               order by m.priority desc, m.dequeue_at limit 1  -- only pgqueue_message_due_ix has this order
           ),
           array(select q.name from pgqueue_queue q where q.paused_at is not null)
    into v_expired, v_arrived, v_ended, v_lanes, v_scheduled, v_paused;
    v_exclude_queues := p_exclude_queues || v_paused;

    if v_expired or v_arrived or v_ended then
        if v_ended and p_brief then  -- first, because it does more in a transaction that has not written
            perform pgqueue_message_settle();
            v_clock := pgqueue_clock();  -- the messages that it has released are due since a moment ago
            v_now := floor(extract(epoch from v_clock) * 1000);
        end if;
        if v_expired and p_brief then
            perform pgqueue_message_expire();
        end if;
        if p_brief then
            perform pgqueue_lane_arm();
        end if;
        v_lanes := exists (select from pgqueue_lane) or v_arrived;
    end if;

    if v_lanes and v_share_of_lanes > 0 then
        -- The conditions name the table, so that sessions plan the statements anew when it gets a column.
        if p_brief then
            return query select * from pgqueue_lane_dequeue(
                p_queues, v_share_of_lanes, p_lock_ms, v_worker, p_tasks, p_exclude_queues => v_exclude_queues)
            where (select true from pgqueue_message where false) is null;
        else
            return query select * from pgqueue_lane_dequeue_apart(
                p_queues, v_share_of_lanes, p_lock_ms, v_worker, p_tasks, v_exclude_queues)
            where (select true from pgqueue_message where false) is null;
        end if;
        get diagnostics v_taken = row_count;
        v_left := v_left - v_taken;
        v_lanes := v_taken = v_share_of_lanes;
    end if;

    if v_scheduled and v_left > 0 and p_queues is null then
        with recursive level as (
            (select m.priority, m.dequeue_at
             from pgqueue_message m
             where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
             order by m.priority desc, m.dequeue_at limit 1)
            union all
            select n.priority, n.dequeue_at
            from level l
            cross join lateral (
                select m.priority, m.dequeue_at
                from pgqueue_message m
                where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
                  and m.priority < l.priority
                order by m.priority desc, m.dequeue_at limit 1
            ) as n
        )
        select array_agg(l.priority) into v_due from level l where l.dequeue_at <= v_now;
        if v_due is not null then
            if not p_brief and v_paused <> '{}' then
                -- A transaction that goes on locks the rows that it brings into line: of other queues no more than it can
                -- take.  Those of paused queues nobody waits for, and they would be in its way at each call.
                update pgqueue_message u
                set in_line = true
                where u.ctid = any (array(
                    select m.ctid
                    from pgqueue_message m
                    where m.ctid = any (array(
                        select f.ctid
                        from (
                            select n.ctid, n.queue
                            from unnest(v_due) as l (priority)
                            cross join lateral (
                                select m.ctid, m.queue
                                from pgqueue_message m
                                where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
                                  and m.priority = l.priority and m.dequeue_at <= v_now
                                  and m.queue <> all (p_exclude_queues)
                                order by m.dequeue_at
                            ) as n
                            limit 500
                        ) as f
                        where f.queue = any (v_paused)
                    )) and m.unlock_at is null and not m.in_line
                    for no key update skip locked
                ));
            end if;
            update pgqueue_message u
            set in_line = true
            where u.ctid = any (array(
                select f.ctid
                from (
                    select n.ctid, n.queue
                    from unnest(v_due) as l (priority)
                    cross join lateral (
                        select m.ctid, m.queue
                        from pgqueue_message m
                        where (m.task is null) = (not p_tasks) and m.unlock_at is null and not m.in_line and m.channel is null
                          and m.priority = l.priority and m.dequeue_at <= v_now
                          and (p_brief or m.queue <> all (p_exclude_queues))
                        order by m.dequeue_at
                        for no key update skip locked
                    ) as n
                    limit 500
                ) as f
                where p_brief or f.queue <> all (v_paused)
                limit case when p_brief then 500 else v_left end
            ));
        end if;
    elsif v_scheduled and v_left > 0 then
        update pgqueue_message u
        set in_line = true
        where u.ctid = any (array(
            with recursive head as (
                select q.queue, h.priority, h.dequeue_at
                from unnest(p_queues) as q (queue)
                cross join lateral (
                    select m.priority, m.dequeue_at
                    from pgqueue_message m
                    where m.queue = q.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
                      and not m.in_line and m.channel is null
                    order by m.priority desc, m.dequeue_at, m.id limit 1
                ) as h
                where q.queue <> all (v_exclude_queues)
                union all
                select l.queue, h.priority, h.dequeue_at
                from head l
                cross join lateral (
                    select m.priority, m.dequeue_at
                    from pgqueue_message m
                    where m.queue = l.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
                      and not m.in_line and m.channel is null and m.priority < l.priority
                    order by m.priority desc, m.dequeue_at, m.id limit 1
                ) as h
            )
            select n.ctid
            from head l
            cross join lateral (
                select m.ctid
                from pgqueue_message m
                where m.queue = l.queue and (m.task is null) = (not p_tasks) and m.unlock_at is null
                  and not m.in_line and m.channel is null and m.priority = l.priority and m.dequeue_at <= v_now
                order by m.dequeue_at, m.id
                limit case when p_brief then 100 end
                for no key update skip locked
            ) as n
            where l.dequeue_at <= v_now
            limit case when p_brief then 500 else v_left end
        ));
    end if;

    while v_left > 0 loop
        if p_floor_queues is not null then
            v_step := v_step + 1;
            exit when v_step > cardinality(p_floor_queues);
            continue when p_floor_queues[v_step] = any (v_exclude_queues);
            v_present := array[p_floor_queues[v_step]];
            v_priority := p_floor_priorities[v_step];
            v_floor_dequeue_at := p_floor_dequeue_ats[v_step];
            v_floor_id := p_floor_ids[v_step];
        elsif p_queues is not null then
            -- The highest priority below the last one at which any of the queues has a due message.
            with recursive level as (
                (select m.priority
                 from pgqueue_message m
                 where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                   and m.priority < v_priority
                 order by m.priority desc limit 1)
                union all
                select n.priority
                from level l
                cross join lateral (
                    select m.priority
                    from pgqueue_message m
                    where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                      and m.priority < l.priority
                    order by m.priority desc limit 1
                ) as n
            )
            select l.priority, s.present
            into v_priority, v_present
            from level l
            cross join lateral (
                select array_agg(q.queue order by random()) as present
                from unnest(p_queues) as q (queue)
                cross join lateral (
                    select m.dequeue_at
                    from pgqueue_message m
                    where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                      and m.priority = l.priority and m.queue = q.queue
                    order by m.dequeue_at, m.id limit 1
                ) as head
                where head.dequeue_at <= v_now and q.queue <> all (v_exclude_queues)
            ) as s
            where s.present is not null
            limit 1;
            exit when not found;
        else
            if v_page is null then  -- the next priority, and whether it has one queue only
                select h.priority, h.queue, h.dequeue_at <= v_now and h.queue <> all (v_exclude_queues), not exists (
                    select from pgqueue_message m
                    where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                      and m.priority = h.priority and m.queue > h.queue
                )
                into v_priority, v_queue, v_alone, v_last
                from (
                    select m.priority, m.queue, m.dequeue_at
                    from pgqueue_message m
                    where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                      and m.priority < v_priority
                    order by m.priority desc, m.queue, m.dequeue_at, m.id limit 1
                ) as h;
                exit when not found;
                v_turn := null;
                if not (v_last and v_alone) then
                    v_page := greatest(v_left, 32);
                    v_from := '';
                end if;
            end if;
            if v_page is null then
                v_present := array[v_queue];
            else
                -- A page of its queues: a loose index scan, one probe for each.
                with recursive line as (
                    (select m.queue, m.dequeue_at
                     from pgqueue_message m
                     where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                       and m.priority = v_priority and m.queue > v_from
                     order by m.queue, m.dequeue_at, m.id limit 1)
                    union all
                    select n.queue, n.dequeue_at
                    from line l
                    cross join lateral (
                        select m.queue, m.dequeue_at
                        from pgqueue_message m
                        where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                          and m.priority = v_priority and m.queue > l.queue
                        order by m.queue, m.dequeue_at, m.id limit 1
                    ) as n
                )
                -- A round keeps the order of the names; where all are in one page, no queue is always the first.
                select array_agg(q.queue order by case when v_turn is null then random() else 0 end, q.queue)
                           filter (where q.dequeue_at <= v_now and q.queue <> all (v_exclude_queues)
                                     and (v_turn is null or not v_wrapped or q.queue <= v_turn)),
                       array_agg(q.queue) filter (where q.dequeue_at > v_now),
                       max(q.queue), count(*) < v_page
                into v_present, v_early, v_from, v_last
                from (select l.queue, l.dequeue_at from line l limit v_page) as q;

                if v_early is not null and p_brief and not v_tidied then
                    v_tidied := true;
                    -- Written by hand, or the clock was put back: the message leaves the line until its time.
                    update pgqueue_message u
                    set in_line = false
                    where u.ctid = any (array(
                        select n.ctid
                        from unnest(v_early) as q (queue)
                        cross join lateral (
                            select m.ctid
                            from pgqueue_message m
                            where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                              and m.priority = v_priority and m.queue = q.queue and m.dequeue_at > v_now
                            order by m.dequeue_at, m.id
                            limit 500
                            for no key update skip locked
                        ) as n
                        limit 500
                    ));
                end if;
                if v_turn is null and v_last then
                    v_page := null;
                elsif v_turn is null then
                    -- More than a page.  This session continues where it stopped, or begins anywhere.
                    v_turn := coalesce(nullif(current_setting(v_setting, true), ''), case floor(random() * 3)
                        when 0 then v_present[1]
                        when 1 then chr(97 + floor(random() * 26)::integer)
                        else (
                            select m.queue from pgqueue_message m
                            where m.id >= (
                                select (f.id + floor(random()::numeric * (l.id::numeric - f.id)))::bigint
                                from (select d.id from pgqueue_message d order by d.id limit 1) as f,
                                     (select d.id from pgqueue_message d order by d.id desc limit 1) as l)
                            order by m.id limit 1)
                    end, '');
                    v_from := v_turn;
                    v_wrapped := false;
                    v_giving := '{}';
                    continue;
                elsif v_wrapped and (v_last or v_from >= v_turn) then  -- the last page of the round
                    v_page := null;
                elsif v_last then
                    v_wrapped := true;
                    v_from := '';
                end if;
            end if;
            continue when v_present is null and (v_turn is null or v_page is not null);
        end if;

        -- First equal shares, in a round one message of each queue.  Then the rest, when a queue had more than its
        -- share and others had less.
        v_share := case when v_turn is null then ceil(v_left::numeric / cardinality(v_present)) else 1 end;
        loop
            v_again := false;
            foreach v_queue in array coalesce(v_present, '{}') loop
                exit when v_left <= 0;
                return query
                with taken as (
                    update pgqueue_message u
                    set unlock_at = v_now + p_lock_ms, locked_at = v_clock, worker = v_worker,
                        attempt = least(u.attempt, 1999999999) + 1
                    where u.id = any (array(
                        select m.id
                        from pgqueue_message m
                        where (m.task is null) = (not p_tasks) and m.unlock_at is null and m.in_line and m.channel is null
                          and m.priority = v_priority and m.queue = v_queue
                          and m.dequeue_at <= v_now
                          and (m.dequeue_at, m.id) >= (v_floor_dequeue_at, v_floor_id)
                        order by m.dequeue_at, m.id
                        limit least(v_share, v_left)
                        for no key update skip locked
                    ))
                    returning u.*
                )
                select * from taken t order by t.dequeue_at, t.id;
                get diagnostics v_taken = row_count;
                v_left := v_left - v_taken;
                v_again := v_again or v_taken >= v_share;
                if v_turn is not null then
                    v_served := v_queue;
                    if v_taken > 0 then
                        v_giving := v_giving || v_queue;
                    end if;
                end if;
            end loop;
            if v_turn is null then
                exit when v_left <= 0 or not v_again or cardinality(v_present) = 1;
                v_share := v_left;
            else
                perform set_config(v_setting, v_served, false) where v_served is not null;
                exit when v_left <= 0 or v_page is not null or v_giving = '{}';
                -- The round is over: the queues that gave a message share the rest.
                v_turn := null;
                v_present := v_giving;
                v_share := ceil(v_left::numeric / cardinality(v_present));
            end if;
        end loop;
    end loop;

    if v_lanes and v_left > 0 then
        if p_brief then
            return query select * from pgqueue_lane_dequeue(
                p_queues, v_left, p_lock_ms, v_worker, p_tasks, p_exclude_queues => v_exclude_queues)
            where (select true from pgqueue_message where false) is null;
        else
            return query select * from pgqueue_lane_dequeue_apart(
                p_queues, v_left, p_lock_ms, v_worker, p_tasks, v_exclude_queues)
            where (select true from pgqueue_message where false) is null;
        end if;
        get diagnostics v_taken = row_count;
        v_left := v_left - v_taken;
    end if;

    if v_expired and not p_brief and v_left > 0 and pgqueue_message_expire(v_left, p_queues, p_tasks) > 0 then
        return query
        select *
        from pgqueue_message_dequeue(
            p_queues, v_left, p_lock_ms, p_worker, p_exclude_queues, p_tasks, p_brief => false)
        where (select true from pgqueue_message where false) is null;
    end if;
end
$$\;
create or replace function pgqueue_quarantine_dequeue(
    p_queues text[] default null,
    p_lock_ms bigint default 60000,
    p_worker text default null,
    p_exclude_queues text[] default '{}'
) returns setof pgqueue_message
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
-- Takes one due message from quarantine and locks it for p_lock_ms: the one with the fewest losses, so that a message
-- that kills every worker never keeps the others waiting.  For a worker that holds nothing else: when that worker dies,
-- only this message can be the cause.  Returns the row as it is now, or nothing.  Parameters as in
-- pgqueue_message_dequeue, which skips these messages.  A raw message is never quarantined: no worker runs it, whatever
-- its row says.
-- A message of a channel is taken where the channel has room, and counts as running there.
-- Locks one row of pgqueue_message, and the row of its channel, without waiting for any; skips locked rows.
declare
    v_clock timestamptz := pgqueue_clock();
    v_now bigint := floor(extract(epoch from v_clock) * 1000);
    v_line refcursor;
    v_message pgqueue_message;
begin
    if (p_lock_ms between 1 and 1000000000000) is not true then
        raise exception 'p_lock_ms is %', coalesce(p_lock_ms::text, 'null')
            using errcode = 'invalid_parameter_value', hint = 'It must be milliseconds, from 1 to 1000000000000.';
    end if;
    -- Read row by row, so that it locks only the message that it takes.
    open v_line for
        select m.* from pgqueue_message m
        where m.alone_at is not null and m.task is not null and m.unlock_at is null and m.alone_at <= v_now
          and (p_queues is null or m.queue = any (p_queues)) and m.queue <> all (p_exclude_queues)
          and m.queue <> all (array(select q.name from pgqueue_queue q where q.paused_at is not null))
        order by m.lost, m.alone_at, m.id
        for update skip locked;
    loop
        fetch v_line into v_message;
        exit when not found;
        if exists (select from pgqueue_channel c where c.name = v_message.channel) then
            update pgqueue_channel c
            set running = c.running + 1,
                release_at = case when c.release_interval_ms > 0 then v_now + c.release_interval_ms end
            where c.name = any (array(
                select d.name from pgqueue_channel d
                where d.name = v_message.channel
                  and (d.running < d.max_concurrency) is not false and (d.release_at <= v_now) is not false
                for no key update skip locked
            ));
            continue when not found;
        elsif v_message.channel is not null then  -- the channel has no row yet, and so no limits
            insert into pgqueue_arrival (channel, queue, raw, ended)
            values (v_message.channel, v_message.queue, v_message.task is null, -1);
        end if;
        return query
        update pgqueue_message m
        set unlock_at = v_now + p_lock_ms, locked_at = v_clock, worker = coalesce(p_worker, pgqueue_session_worker()),
            attempt = least(m.attempt, 1999999999) + 1, dequeue_at = m.alone_at
        where m.id = v_message.id
        returning m.*;
        exit;
    end loop;
    close v_line;
end
$$\;
drop function if exists pgqueue_message_publish(text, text, jsonb, jsonb, integer, bigint, boolean)\;
create or replace function pgqueue_message_publish(
    p_exchange text,
    p_routing_key text,
    p_content jsonb,
    p_headers jsonb default null,
    p_priority integer default null,
    p_dequeue_at bigint default null,
    p_unknown_ok boolean default false,
    p_version text default null
) returns table (p_id bigint, p_queue text, p_task text)
language plpgsql
set search_path from current
as $$
-- Enqueues one message in every queue that is bound to the exchange with a pattern that matches the routing key, in the
-- caller's transaction.  Returns the enqueued messages: no row when nothing matches (see pgqueue_exchange_route).
-- The headers get the keys exchange and routing_key.  A message for a task has the content
-- {"args": [p_content, p_routing_key], "kwargs": {}}.
--   p_priority     null: the priority of the binding
--   p_dequeue_at   as in pgqueue_message_create
--   p_unknown_ok   true: for an unknown exchange it returns one row of nulls; false: that is an error
--   p_version      as in pgqueue_message_create; raw messages get none
-- Reads pgqueue_exchange and pgqueue_binding without row locks and writes pgqueue_message: a publisher waits for no
-- other session, and none waits for it.  Wakes one sleeping consumer for each queue that got a ready message.
declare
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
    v_headers jsonb := coalesce(p_headers, '{}')
        || jsonb_build_object('exchange', p_exchange, 'routing_key', p_routing_key);
    v_is_ready boolean := coalesce(p_dequeue_at, v_now) <= v_now;
    v_woken_queue text;
    v_woken_tasks boolean;
begin
    if not exists (select from pgqueue_exchange e where e.name = p_exchange) then
        if p_unknown_ok then
            return next;
            return;
        end if;
        raise exception 'there is no exchange "%"', p_exchange
            using errcode = 'undefined_object',
                  hint = format('Create it first: select pgqueue_exchange_declare(%L).', p_exchange);
    elsif p_routing_key is null or octet_length(p_routing_key) > 255 then
        raise exception 'the routing key "%" is not a text of at most 255 bytes', p_routing_key
            using errcode = 'invalid_parameter_value';
    end if;
    if pgqueue_message_is_large(p_content) or pgqueue_message_is_large(v_headers) then
        p_content := pgqueue_message_readable(p_content, 'content');
        v_headers := pgqueue_message_readable(v_headers, 'headers');
    end if;

    for p_id, p_queue, p_task in
        insert into pgqueue_message as m (
            content, queue, task, priority, dequeue_at, headers, max_attempts, version, created_at, in_line)
        select case
                   when r.task is null then p_content
                   else jsonb_build_object('args', jsonb_build_array(p_content, p_routing_key), 'kwargs', '{}'::jsonb)
               end,
               r.queue, r.task, coalesce(p_priority, r.priority), coalesce(p_dequeue_at, v_now), v_headers,
               r.max_attempts, case when r.task is not null then p_version end, v_clock, v_is_ready
        from pgqueue_exchange_route(p_exchange, p_routing_key) as r (queue, task, priority, max_attempts)
        returning m.id, m.queue, m.task
    loop
        -- The messages come in the order of their queues: one sleeper for each queue is enough.
        if (p_queue, p_task is not null) is distinct from (v_woken_queue, v_woken_tasks) then
            v_woken_queue := p_queue;
            v_woken_tasks := p_task is not null;
            if v_is_ready then
                perform pgqueue_worker_wake(v_woken_queue, v_woken_tasks);
            else
                perform pgqueue_worker_wake_by(v_woken_queue, v_woken_tasks, p_dequeue_at);
            end if;
        end if;
        return next;
    end loop;
end
$$\;
drop function if exists pgqueue_attempt_enqueue(bigint[])\;
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
$$\;
create or replace function pgqueue_message_attention_at() returns bigint
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
    -- Returns when a worker that rests has to look, though no waiting message is due then (epoch ms; null: never): the
    -- first lock that runs out, the first check of a message that waits for others, the first end that was not looked
    -- at, and the first quarantined message.  For waiting messages there is pgqueue_message_next_at.
    -- Behind a hundred quarantined messages there may be another one: then it is in a minute at the latest.
    -- Where events of lanes wait for a dequeue, or a message is parked, it is now.
    -- One probe each of pgqueue_message_locked_ix, pgqueue_message_check_ix and pgqueue_ended, a hundred steps at most
    -- along pgqueue_message_alone_ix, and one each of pgqueue_arrival and pgqueue_message_parked_ix.
    select least(
        (select m.unlock_at from pgqueue_message m where m.unlock_at is not null order by m.unlock_at limit 1),
        (select m.check_at from pgqueue_message m where m.check_at is not null order by m.check_at limit 1),
        -- Where the clock was ahead, it is now (pgqueue_message_settle).
        (select case when e.look_at > pgqueue_now() + 60000 then pgqueue_now() else e.look_at end
         from pgqueue_ended e order by e.look_at, e.id limit 1),
        (select least(min(q.alone_at) filter (where q.is_running), case when count(*) = 100 then pgqueue_now() + 60000 end)
         from (select m.alone_at,
                      (select true from pgqueue_queue p where p.name = m.queue and p.paused_at is not null) is null as is_running
               from (select m.alone_at, m.queue from pgqueue_message m
                     where m.alone_at is not null and m.task is not null and m.unlock_at is null
                     order by m.lost, m.alone_at, m.id limit 100) as m) as q),
        (select pgqueue_now() from (select from pgqueue_arrival a order by a.channel, a.queue, a.raw limit 1) as w),
        (select pgqueue_now()
         from (select from pgqueue_message m
               where m.parked_at is not null and m.task is not null
               order by m.queue, m.task, m.parked_at limit 1) as w))
$$\;
create or replace function pgqueue_backlog(
    p_queues text[] default null,
    out p_ready bigint,
    out p_oldest_wait_ms bigint,
    out p_running bigint
)
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Returns what there is to do for workers of these queues (null: all), for an autoscaler, which asks often.
--   p_ready           tasks that a worker could begin now: due, in a queue that is not paused, and within the limit of
--                     their channel.  Tasks whose worker went away, and waiting ones that have to be looked at, count too.
--                     Of parked messages one counts for each task: a worker finds out whether it knows it
--   p_oldest_wait_ms  how long the first of them has been waiting; null: nothing is ready
--   p_running         tasks that workers hold
-- Raw messages do not count.  Counts end at 10000, which means "at least".  So does everything else here: it costs a
-- bounded number of index probes, whatever is scheduled, ready, running or paused.  In all queues together it reads the
-- heads of the first 1000 pairs of priority and queue, of channels up to 10000 lanes with new events, 1000 others and
-- 2000 pairs of lane and priority, and 1000 parked tasks.  Where it has met such a limit there may be more behind it:
-- p_ready and p_running are never 0 then, so that a worker looks.
-- Probes pgqueue_message_ready_ix, pgqueue_message_due_ix, pgqueue_message_scheduled_ix, pgqueue_message_lane_ix,
-- pgqueue_message_locked_ix, the indexes of quarantined, waiting and parked messages, pgqueue_lane, pgqueue_channel
-- and pgqueue_arrival.
-- The plan must be generic: see pgqueue_message_next_at, and (task is null) = v_raw.
declare
    v_most constant integer := 10000;
    v_raw boolean := false;
    v_now bigint := pgqueue_now();
    v_paused text[] := array(select q.name from pgqueue_queue q where q.paused_at is not null);
    v_served text[];  -- null: all
    v_priorities integer[];
    v_queues text[];
    v_channels text[];
    v_since bigint;
    v_count bigint;
    v_oldest bigint;
    v_more boolean := false;  -- whether a limit was met
begin
    if p_queues is not null then
        v_served := array(select distinct u.queue from unnest(p_queues) as u (queue) where u.queue <> all (v_paused));
    end if;

    -- In line.
    if v_served is null then
        -- Steps over paused queues, with one probe for each of their priorities.
        with recursive line as (
            (select m.priority, m.queue from pgqueue_message m
             where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
             order by m.priority desc, m.queue limit 1)
            union all
            select n.priority, n.queue
            from line l
            cross join lateral (
                (select m.priority, m.queue from pgqueue_message m
                 where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
                   and m.priority = l.priority and m.queue > l.queue
                 order by m.queue limit 1)
                union all
                (select m.priority, m.queue from pgqueue_message m
                 where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
                   and m.priority < l.priority
                 order by m.priority desc, m.queue limit 1)
                limit 1
            ) as n
        )
        select array_agg(l.priority), array_agg(l.queue), count(*) = 1000 into v_priorities, v_queues, v_more
        from (select l.priority, l.queue from line l where l.queue <> all (v_paused) limit 1000) as l;
    else
        select array_agg(l.p_priority), array_agg(q.queue) into v_priorities, v_queues
        from pgqueue_message_levels() as l
        cross join unnest(v_served) as q (queue)
        where not l.p_raw;
    end if;
    select count(*), min(d.since) into p_ready, v_since
    from (
        select d.since
        from unnest(v_priorities, v_queues) as l (priority, queue)
        cross join lateral (
            select greatest(m.dequeue_at, pgqueue_to_epoch(m.created_at)) as since from pgqueue_message m
            where (m.task is null) = v_raw and m.unlock_at is null and m.in_line and m.channel is null
              and m.priority = l.priority and m.queue = l.queue and m.dequeue_at <= v_now
            order by m.dequeue_at, m.id limit v_most
        ) as d
        limit v_most
    ) as d;

    -- Due, and no dequeue has brought it into line yet: first the priorities that have such messages in any queue.
    with recursive level as (
        (select m.priority, m.dequeue_at from pgqueue_message m
         where (m.task is null) = v_raw and m.unlock_at is null and not m.in_line and m.channel is null
         order by m.priority desc, m.dequeue_at limit 1)
        union all
        select n.priority, n.dequeue_at
        from level l
        cross join lateral (
            select m.priority, m.dequeue_at from pgqueue_message m
            where (m.task is null) = v_raw and m.unlock_at is null and not m.in_line and m.channel is null
              and m.priority < l.priority
            order by m.priority desc, m.dequeue_at limit 1
        ) as n
    )
    select array_agg(l.priority) into v_priorities from level l where l.dequeue_at <= v_now;
    if v_priorities is not null then
        v_queues := v_served;
        if v_served is null then
            with recursive present as (
                (select m.queue from pgqueue_message m
                 where m.unlock_at is null and not m.in_line and m.channel is null
                 order by m.queue limit 1)
                union all
                select n.queue
                from present p
                cross join lateral (
                    select m.queue from pgqueue_message m
                    where m.unlock_at is null and not m.in_line and m.channel is null and m.queue > p.queue
                    order by m.queue limit 1
                ) as n
            )
            select array_agg(p.queue), count(*) = 1000 or v_more into v_queues, v_more
            from (select p.queue from present p where p.queue <> all (v_paused) limit 1000) as p;
        end if;
        v_more := v_more or coalesce(cardinality(v_queues) * cardinality(v_priorities) > v_most, false);
        select count(*), min(d.dequeue_at) into v_count, v_oldest
        from (
            select d.dequeue_at
            from (select l.priority, q.queue
                  from unnest(v_priorities) as l (priority) cross join unnest(v_queues) as q (queue) limit v_most) as l
            cross join lateral (
                select m.dequeue_at from pgqueue_message m
                where m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null and not m.in_line
                  and m.channel is null and m.priority = l.priority and m.dequeue_at <= v_now
                order by m.dequeue_at, m.id limit v_most
            ) as d
            limit v_most
        ) as d;
        p_ready := p_ready + v_count;
        v_since := least(v_since, v_oldest);
    end if;

    -- In lanes: those that workers have armed, and, because nobody may have moved the rows of pgqueue_arrival, those with
    -- such rows and the other halted lanes of their channels.
    with recursive arrival as (
        (select a.channel, a.queue, a.raw from pgqueue_arrival a order by a.channel, a.queue, a.raw limit 1)
        union all
        select n.channel, n.queue, n.raw
        from arrival p
        cross join lateral (
            select a.channel, a.queue, a.raw from pgqueue_arrival a
            where (a.channel, a.queue, a.raw) > (p.channel, p.queue, p.raw)
            order by a.channel, a.queue, a.raw limit 1
        ) as n
    ), recent as (
        select a.channel, a.queue, a.raw from arrival a limit v_most
    ), present as (
        (select d.queue from pgqueue_lane d
         where v_served is null and d.next_at is not null and exists (
             select from pgqueue_lane l where l.raw = v_raw and l.next_at is not null and l.next_at <= v_now)
         order by d.queue limit 1)
        union all
        select n.queue
        from present p
        cross join lateral (
            select d.queue from pgqueue_lane d where d.next_at is not null and d.queue > p.queue order by d.queue limit 1
        ) as n
    ), queue as (
        (select p.queue from present p where p.queue <> all (v_paused) limit 1000)
        union all
        select q.queue from unnest(v_served) as q (queue)
    ), lane as (
        (select l.channel, q.queue
         from queue q
         cross join lateral (
             select d.channel from pgqueue_lane d
             where d.queue = q.queue and d.raw = v_raw and d.next_at is not null and d.next_at <= v_now
             order by d.next_at, d.turned_at nulls first limit 1000
         ) as l
         limit 1000)
        union
        (select r.channel, r.queue from recent r
         where r.raw = v_raw and r.queue <> all (v_paused) and (v_served is null or r.queue = any (v_served))
         limit 1000)
        union
        (select r.channel, l.queue
         from (select distinct r.channel from recent r) as r
         cross join lateral (
             select d.queue, d.raw, d.parked from pgqueue_lane d where d.channel = r.channel order by d.queue limit 1000
         ) as l
         where l.parked and l.raw = v_raw and l.queue <> all (v_paused)
           and (v_served is null or l.queue = any (v_served))
         limit 1000)
    )
    select array_agg(l.channel), array_agg(l.queue),
           v_more or count(*) = 1000 or (select count(*) = v_most from recent)
               or (v_served is null and (select count(*) = 1000 from queue))
    into v_channels, v_queues, v_more
    from (select l.channel, l.queue from lane l limit 1000) as l;
    -- Of each no more than its channel would let begin.
    with recursive head as (
        select l.channel, l.queue, r.room, h.priority
        from unnest(v_channels, v_queues) as l (channel, queue)
        cross join lateral (
            select coalesce((
                select case
                    when c.release_at > v_now then 0
                    when c.release_interval_ms > 0 then least(1, t.room)
                    else t.room
                end
                from pgqueue_channel c
                cross join lateral (
                    -- Behind a hundred events there may be the end of an attempt.
                    select greatest(c.max_concurrency - c.running + coalesce(sum(a.ended), 0),
                                    case when count(*) = 100 then least(c.max_concurrency, 1) end) as room
                    from (select e.ended from pgqueue_arrival e
                          where e.channel = c.name and c.max_concurrency is not null limit 100) as a
                ) as t
                where c.name = l.channel), v_most) as room
        ) as r
        cross join lateral (
            select m.priority from pgqueue_message m
            where m.channel = l.channel and m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null
              and m.channel is not null
            order by m.priority desc limit 1
        ) as h
        where r.room > 0
        union all
        select l.channel, l.queue, l.room, h.priority
        from head l
        cross join lateral (
            select m.priority from pgqueue_message m
            where m.channel = l.channel and m.queue = l.queue and (m.task is null) = v_raw and m.unlock_at is null
              and m.channel is not null and m.priority < l.priority
            order by m.priority desc limit 1
        ) as h
    )
    select coalesce(sum(least(t.waiting, t.room)), 0), min(t.since),
           v_more or (select count(*) = 2000 from (select from head limit 2000) as h)
    into v_count, v_oldest, v_more
    from (
        select d.channel, count(*) as waiting, min(d.since) as since, min(d.room) as room
        from (
            select h.channel, h.room, d.since
            from (select h.channel, h.queue, h.room, h.priority from head h limit 2000) as h
            cross join lateral (
                select greatest(m.dequeue_at, pgqueue_to_epoch(m.created_at)) as since from pgqueue_message m
                where m.channel = h.channel and m.queue = h.queue and (m.task is null) = v_raw and m.unlock_at is null
                  and m.channel is not null and m.priority = h.priority and m.dequeue_at <= v_now
                order by m.dequeue_at, m.id limit least(h.room, v_most)
            ) as d
            limit v_most
        ) as d
        group by d.channel
    ) as t;
    p_ready := p_ready + v_count;
    v_since := least(v_since, v_oldest);

    -- Held: those whose lock has run out are to be taken over.
    select count(*) filter (where h.served), min(h.unlock_at) filter (where h.served), v_more or count(*) = v_most
    into v_count, v_oldest, v_more
    from (
        select m.unlock_at, m.task is not null and (v_served is null or m.queue = any (p_queues)) as served
        from pgqueue_message m
        where m.unlock_at is not null and m.unlock_at <= v_now order by m.unlock_at limit v_most
    ) as h;
    p_ready := p_ready + v_count;
    v_since := least(v_since, v_oldest);
    select greatest(count(*) filter (where h.served), (count(*) = v_most)::integer) into p_running
    from (
        select m.task is not null and (v_served is null or m.queue = any (p_queues)) as served
        from pgqueue_message m
        where m.unlock_at is not null and m.unlock_at > v_now order by m.unlock_at limit v_most
    ) as h;

    -- Quarantined messages, and waits for others that are over or have to be looked at.
    select count(*) filter (where o.served), min(o.since) filter (where o.served), v_more or count(*) >= 1000
    into v_count, v_oldest, v_more
    from (
        select o.since, o.since <= v_now and (o.queue is null or o.queue <> all (v_paused)
                                              and (v_served is null or o.queue = any (v_served))) as served
        from (
            (select case when m.alone_at <= v_now then least(v_now, greatest(m.alone_at, pgqueue_to_epoch(m.created_at)))
                         else m.alone_at end as since,
                    m.queue
             from pgqueue_message m
             where m.alone_at is not null and m.task is not null and m.unlock_at is null
             order by m.lost, m.alone_at, m.id limit 1000)
            union all
            (select m.check_at, m.queue from pgqueue_message m
             where m.check_at is not null and m.check_at <= v_now order by m.check_at limit 1000)
            union all
            -- Where the clock was ahead, it is looked at now (pgqueue_message_settle).
            (select case when e.look_at > v_now + 60000 then v_now else e.look_at end, null
             from pgqueue_ended e order by e.look_at, e.id limit 1000)
        ) as o
    ) as o;
    p_ready := p_ready + v_count;
    v_since := least(v_since, v_oldest);

    -- Parked.
    select count(*) filter (where k.served), min(coalesce(k.unknown_since, v_now)) filter (where k.served),
           v_more or count(*) = 1000
    into v_count, v_oldest, v_more
    from (
        select k.p_unknown_since as unknown_since,
               k.p_queue <> all (v_paused) and (v_served is null or k.p_queue = any (v_served)) as served
        from pgqueue_message_parked(1000, p_count => 1) as k
    ) as k;
    p_ready := least(p_ready + v_count, v_most);
    v_since := least(v_since, v_oldest);

    if v_more and p_ready = 0 then
        p_ready := 1;
        v_since := v_now;
    end if;
    p_oldest_wait_ms := case when v_since is not null then greatest(0, v_now - greatest(v_since, 0)) end;
end
$$\;
create or replace function pgqueue_schedule_declare(
    p_name text,
    p_task text,
    p_next_at bigint,
    p_cron text default null,
    p_interval_ms bigint default null,
    p_timezone text default 'UTC',
    p_catch_up text default 'one',
    p_content jsonb default '{"args": [], "kwargs": {}}',
    p_queue text default 'default',
    p_priority integer default 0,
    p_max_attempts integer default null,
    p_worker text default null
) returns boolean
language plpgsql
set search_path from current
as $$
-- Makes a schedule that a project's code declares, or updates it.  p_next_at counts when the schedule is new or its
-- rule has changed; a paused schedule stays paused.
-- Returns true when the schedule now is as declared, false when the caller has to call again.  There are two reasons
-- for false.  Either another live worker declares the present state of the schedule (p_worker: the worker that calls):
-- of two versions of the code the first stays in force until its last worker has left.  Or the rule has changed while
-- slots of the old rule are due, and pgqueue_schedule_fire comes first.
-- Locks one row of pgqueue_schedule, where there is a change; writes pgqueue_schedule_declaration.
declare
    v_schedule pgqueue_schedule;
    v_waits boolean;
    v_stands bigint;
    v_declared bigint := hashtextextended(row(
        p_task, p_cron, p_interval_ms, p_timezone, p_catch_up, p_content, p_queue, p_priority, p_max_attempts)::text, 0);
begin
    p_content := pgqueue_message_readable(p_content, 'content');
    insert into pgqueue_schedule (
        name, task, next_at, cron, interval_ms, timezone, catch_up, content, queue, priority, max_attempts, declared)
    select p_name, p_task, p_next_at, p_cron, p_interval_ms, p_timezone, p_catch_up, p_content, p_queue, p_priority,
           p_max_attempts, true
    where not exists (select from pgqueue_schedule s where s.name = p_name)
    on conflict (name) do nothing;
    if p_worker is not null then
        insert into pgqueue_schedule_declaration as d (name, worker, declaration) values (p_name, p_worker, v_declared)
        on conflict (name, worker) do update set declaration = excluded.declaration
        where d.declaration <> excluded.declaration;
    end if;

    -- Every worker calls this once a minute: an unchanged schedule is neither written nor locked.
    if exists (
        select from pgqueue_schedule s
        where s.name = p_name and s.declared and v_declared = hashtextextended(row(
            s.task, s.cron, s.interval_ms, s.timezone, s.catch_up, s.content, s.queue, s.priority, s.max_attempts)::text, 0)
    ) then
        return true;
    end if;

    select s.* into v_schedule from pgqueue_schedule s where s.name = p_name for update;
    if not found then  -- just deleted by hand
        return false;
    end if;
    v_stands := hashtextextended(row(
        v_schedule.task, v_schedule.cron, v_schedule.interval_ms, v_schedule.timezone, v_schedule.catch_up,
        v_schedule.content, v_schedule.queue, v_schedule.priority, v_schedule.max_attempts)::text, 0);
    if v_schedule.declared and v_stands <> v_declared and exists (
        select from pgqueue_schedule_declaration d
        join pgqueue_worker w on w.id = d.worker
        where d.name = p_name and d.declaration = v_stands and d.worker is distinct from p_worker
          and (w.seen_at > pgqueue_clock() - interval '1 minute' or w.silent_until > pgqueue_now())
    ) then
        return false;
    end if;

    v_waits := (v_schedule.cron, v_schedule.interval_ms, v_schedule.timezone)
            is distinct from (p_cron, p_interval_ms, p_timezone)
        and v_schedule.paused_at is null and v_schedule.next_at <= pgqueue_now();
    update pgqueue_schedule s
    set task = p_task, content = p_content, queue = p_queue, priority = p_priority, max_attempts = p_max_attempts,
        declared = true,
        cron = case when v_waits then s.cron else p_cron end,
        interval_ms = case when v_waits then s.interval_ms else p_interval_ms end,
        timezone = case when v_waits then s.timezone else p_timezone end,
        catch_up = case when v_waits then s.catch_up else p_catch_up end,
        next_at = case
            when v_waits or (s.cron, s.interval_ms, s.timezone) is not distinct from (p_cron, p_interval_ms, p_timezone)
            then s.next_at else p_next_at
        end
    where s.name = p_name
      and (not v_waits or (s.task, s.content, s.queue, s.priority, s.max_attempts, s.declared)
           is distinct from (p_task, p_content, p_queue, p_priority, p_max_attempts, true));
    return not v_waits;
end
$$\;
drop function if exists pgqueue_staged_enqueue(text, bigint, uuid, uuid[], bigint)\;
create or replace function pgqueue_staged_enqueue(
    p_run_id text,
    p_epoch bigint,
    p_batch uuid,
    p_tokens uuid[],
    p_rows bigint,
    p_replay text default null
) returns bigint
language plpgsql
set search_path from current
as $$
-- Enqueues the rows that the tasks p_tokens have staged as p_batch, once.  Returns how many rows that were, or null
-- when the ledger has this epoch of the run already.  A row whose unique key is held makes no message.
-- p_rows is the required number of rows; with another number, or when a channel is full, it raises an error and nothing
-- happens.  A second caller with the same run waits for the first.  Rows from other tries of tasks are deleted.
-- p_replay is the name of a replay: it also raises an error when a message with the header enqueued_again_from was
-- replayed under this name before.
-- Writes pgqueue_ledger, pgqueue_replayed, pgqueue_message and pgqueue_staged; wakes one sleeping worker for each queue with a ready
-- message.
declare
    v_now bigint := pgqueue_now(now());
    v_clock timestamptz := pgqueue_clock(now());
    v_plain bigint;
    v_others bigint := 0;
    v_queue text;
    v_messages jsonb;
    v_bytes bigint := 0;
    v_calls refcursor;
    v_made bigint;
    v_refused bigint;
    v_known bigint;
begin
    insert into pgqueue_ledger as l (run_id, epoch, rows) values (p_run_id, p_epoch, p_rows)
    on conflict (run_id) do update set epoch = excluded.epoch, rows = l.rows + excluded.rows, written_at = now()
    where l.epoch < excluded.epoch;
    if not found then
        delete from pgqueue_staged s where s.batch = p_batch;
        return null;
    end if;

    if p_replay is not null then
        delete from pgqueue_replayed r where r.replayed_at < now() - interval '365 days';
        with first as (
            insert into pgqueue_replayed (replay, message_id)
            select p_replay, (s.headers ->> 'enqueued_again_from')::bigint
            from pgqueue_staged s
            where s.batch = p_batch and s.token = any (p_tokens) and s.headers ? 'enqueued_again_from'
            order by 2
            on conflict do nothing
            returning 1)
        select p_rows - count(*) into v_known from first;
        if v_known > 0 then
            raise exception 'another run has replayed % of the messages of run %', v_known, p_run_id
                using hint = 'Nothing was enqueued. Run the replay again: it selects only those that are left.';
        end if;
    end if;

    insert into pgqueue_message (content, queue, task, priority, dequeue_at, headers, max_attempts, created_at, in_line)
    select case when pgqueue_message_is_large(s.content) then pgqueue_message_readable(s.content, 'content')
                else s.content end,
           s.queue, s.task, s.priority, coalesce(s.dequeue_at, v_now),
           case when pgqueue_message_is_large(s.headers) then pgqueue_message_readable(s.headers, 'headers')
                else s.headers end,
           s.max_attempts, v_clock, coalesce(s.dequeue_at, v_now) <= v_now
    from pgqueue_staged s
    where s.batch = p_batch and s.token = any (p_tokens) and s.channel is null and s.unique_key is null;
    get diagnostics v_plain = row_count;
    for v_queue in
        select distinct s.queue from pgqueue_staged s
        where s.batch = p_batch and s.token = any (p_tokens) and coalesce(s.dequeue_at, v_now) <= v_now
            and s.channel is null and s.unique_key is null
            and exists (select from pgqueue_worker w where w.asleep_until is not null)
    loop
        perform pgqueue_worker_wake(v_queue);
    end loop;
    if exists (select from pgqueue_worker w where w.silent_until is not null) then
        perform pgqueue_worker_wake_by(l.queue, null, l.dequeue_at)
        from (
            select s.queue, min(s.dequeue_at) as dequeue_at from pgqueue_staged s
            where s.batch = p_batch and s.token = any (p_tokens) and s.dequeue_at > v_now
                and s.channel is null and s.unique_key is null
            group by s.queue
        ) as l;
    end if;

    if v_plain <> p_rows then
        -- A jsonb array has room for 256 MB.  A number may take two bytes of text, and twelve there.
        select count(*), sum(case when pgqueue_message_is_large(s.content) or pgqueue_message_is_large(s.headers)
                                  then octet_length(s.content::text) + coalesce(octet_length(s.headers::text), 0)
                                  else 0 end)
        into v_others, v_bytes
        from pgqueue_staged s
        where s.batch = p_batch and s.token = any (p_tokens) and (s.channel is not null or s.unique_key is not null);
    end if;
    if v_plain + v_others <> p_rows then
        raise exception 'run % has staged % rows, and pgqueue_staged has %', p_run_id, p_rows, v_plain + v_others
            using hint = 'The server crashed, or another session emptied pgqueue_staged. Nothing was enqueued: run the write again.';
    end if;

    if v_others > 5000 or v_bytes >= 16777216 then
        -- Several calls below: keys are in order within a call, but other bulks may begin between two calls.
        perform pgqueue_message_lock_keys(t.task, true)
        from (select distinct s.task from pgqueue_staged s
              where s.batch = p_batch and s.token = any (p_tokens) and s.unique_key is not null order by 1) as t;
    end if;
    open v_calls for
        -- Skipped when there are none: the search alone would read all rows again.
        select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                   'queue', o.queue, 'task', o.task, 'priority', o.priority, 'dequeue_at', o.dequeue_at,
                   'channel', o.channel, 'unique_key', o.unique_key, 'on_conflict', 'keep'))
                   || jsonb_build_object('content', o.content, 'headers', o.headers, 'max_attempts', o.max_attempts)
                   order by o.place)
        from (select k.*, sum(case when pgqueue_message_is_large(k.content) or pgqueue_message_is_large(k.headers)
                                   then octet_length(k.content::text) + coalesce(octet_length(k.headers::text), 0)
                                   else 0 end) over (order by k.place) as bytes
              from (select s.*, row_number() over (order by s.unique_key collate "C" nulls first) as place
                    from pgqueue_staged s
                    where s.batch = p_batch and s.token = any (p_tokens)
                      and (s.channel is not null or s.unique_key is not null) and v_others > 0) as k) as o
        group by (o.place - 1) / 5000, o.bytes / 16777216
        order by (o.place - 1) / 5000, o.bytes / 16777216;
    loop
        fetch v_calls into v_messages;  -- a loop over the query itself would fetch fifty at a time into memory
        exit when not found;
        select count(*), count(*) filter (where c.id is null) into v_made, v_refused
        from pgqueue_message_create_many(v_messages) as c (id);
        v_others := v_others - v_made;
        if v_refused > 0 then
            raise exception 'run % has % rows or more whose channel is full', p_run_id, v_refused
                using hint = 'Nothing was enqueued. Run the write again when the channel has room, or enqueue fewer rows at a time.';
        end if;
    end loop;
    close v_calls;
    if v_others > 0 then  -- it waited for keys, and the writer, whose connection broke, has given up meanwhile
        raise exception 'rows of run % were deleted while it was enqueued', p_run_id
            using hint = 'Nothing was enqueued: run the write again.';
    end if;

    delete from pgqueue_staged s where s.batch = p_batch;
    return p_rows;
end
$$\;
create or replace function pgqueue_version() returns text
language sql immutable parallel safe
as $$
    -- Returns the release whose tables and functions are installed: the last one that changed any of them.  A queue
    -- without this function is that of the first release.  Workers ask for it when they start, and so do upgrade.sql
    -- and the migrations.
    select '0.2.0'
$$\;
create or replace function pgqueue_message_release(p_ids bigint[], p_attempts integer[], p_worker text) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Gives back messages that the caller holds and has not begun: they are ready again at their old places, and the
-- attempt does not count.  Returns the ids of these messages.  A message that was asked to stop meanwhile
-- (pgqueue_message_request_cancel) is among them, but leaves the queue as cancelled.  A message that holds its unique
-- key until it starts gets the key back, unless another message holds it now, or is just about to.
-- Locks rows of pgqueue_message in the order of ids.  Only cancelled messages go to the history: there was no attempt.
declare
    v_message record;
    v_withdrawn pgqueue_message;
    v_cancelled bigint[] := '{}';
    v_keyed bigint[];
    v_keys text[];
    v_lock_timeout text := current_setting('lock_timeout');
begin
    select array_agg(m.id order by m.id), array_agg(m.unique_key order by m.id) into v_keyed, v_keys
    from pgqueue_message m
    where m.id = any (p_ids) and m.worker = p_worker and m.unique_key is not null
      and m.unique_until_started and m.attempt = 1;

    for v_message in
        update pgqueue_message m
        set unlock_at = null, locked_at = null, worker = null, progress = null,
            attempt = greatest(m.attempt, 1) - 1,
            dequeue_at = case when m.alone_at is null then m.dequeue_at else 9223372036854775807 end,
            in_line = m.alone_at is null,
            -- Another message may hold the key that this one would hold again, and that must not stop the release.
            unique_key = case when not m.unique_until_started or m.attempt > 1 then m.unique_key end
        where m.id = any (p_ids)
          and m.worker = p_worker
          and m.attempt = p_attempts[array_position(p_ids, m.id)]
        returning m.id, m.cancel_requested_at
    loop
        if v_message.cancel_requested_at is not null then
            v_cancelled := v_cancelled || v_message.id;
        end if;
        return next v_message.id;
    end loop;

    -- Another transaction that takes the same key may last long, and a worker has no time to wait for its end.
    perform set_config('lock_timeout', '10ms', true) where v_keyed is not null;
    for v_message in
        select k.id, k.unique_key from unnest(v_keyed, v_keys) as k (id, unique_key)
    loop
        begin
            update pgqueue_message m set unique_key = v_message.unique_key
            where m.id = v_message.id and m.attempt = 0 and m.worker is null and m.unique_key is null;
        exception
            when unique_violation or lock_not_available then null;
        end;
    end loop;
    perform set_config('lock_timeout', v_lock_timeout, true) where v_keyed is not null;

    -- Consumers may not call pgqueue_message_cancel(bigint[]).
    for v_withdrawn in
        delete from pgqueue_message m where m.id = any (v_cancelled) returning m.*
    loop
        perform pgqueue_attempt_append(v_withdrawn, 'cancelled', true);
    end loop;
    perform pgqueue_child_cancel(v_cancelled) where v_cancelled <> '{}';
end
$$\;
create or replace function pgqueue_quarantine_waits(
    p_queues text[] default null,
    p_exclude_queues text[] default '{}'
) returns boolean
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
    -- Returns whether pgqueue_quarantine_dequeue with these queues would take a message now.  Workers ask when they
    -- report that they are alive.
    -- The order and the scalar subqueries pin the plan: a walk along pgqueue_message_alone_ix, which is mostly empty.
    select (
        select true from pgqueue_message m
        where m.alone_at is not null and m.task is not null and m.unlock_at is null and m.alone_at <= pgqueue_now()
          and (p_queues is null or m.queue = any (p_queues)) and m.queue <> all (p_exclude_queues)
          and (select true from pgqueue_queue q where q.name = m.queue and q.paused_at is not null) is null
          and (
              select true from pgqueue_channel c
              where c.name = m.channel and (c.running >= c.max_concurrency or c.release_at > pgqueue_now())
          ) is null
        order by m.lost, m.alone_at, m.id
        limit 1
    ) is not null
$$\;
create or replace function pgqueue_attempt_partition(p_day date) returns boolean
language plpgsql
set search_path from current
set timezone = 'UTC'
set datestyle = 'ISO'
as $$
-- Makes the partition pgqueue_attempt_YYYYMMDD of the history for one day (UTC), and moves the rows of that day from
-- pgqueue_attempt_default into it.  Returns true when it was made, and false when it was there already.  A table of this
-- name that was detached is an error.
-- The rows move before this takes a lock that others wait for; the few that came meanwhile move after that.  From then
-- on it holds, until the end of the transaction, ACCESS EXCLUSIVE on pgqueue_attempt_default and SHARE UPDATE
-- EXCLUSIVE on pgqueue_attempt: attempts of days with a partition end without waiting, and so do readers that name
-- such days.  Around today it first takes SHARE ROW EXCLUSIVE on pgqueue_attempt: an attempt that ends at this moment
-- waits there, before its row is routed to a partition.  If it waited for pgqueue_attempt_default instead, that table
-- would refuse its row, because the partition for it exists by then.
-- The queue has dynamic SQL only for partitions, those of pgqueue_step too, because a table name cannot be a parameter.
declare
    v_name text := 'pgqueue_attempt_' || to_char(p_day, 'YYYYMMDD');
    v_move text;
begin
    -- Not to_regclass: the search_path may lead to another queue as well.
    if exists (
        select from pg_class c
        where c.relname = v_name
          and c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'pgqueue_attempt'::regclass)
    ) then
        if not exists (
            select from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'pgqueue_attempt'::regclass and c.relname = v_name
        ) then
            raise exception '% is there, and no partition of pgqueue_attempt', v_name
                using errcode = 'duplicate_table', hint = 'Somebody has detached it: rename it, or drop it.';
        end if;
        return false;
    end if;
    execute format('create table %I (like pgqueue_attempt including defaults including constraints)', v_name);
    execute format('alter table %I replica identity full', v_name);  -- people delete rows by hand
    v_move := format(
        'with moved as (delete from pgqueue_attempt_default where finished_at >= %L and finished_at < %L returning *)
         insert into %I select * from moved',
        p_day::timestamptz, (p_day + 1)::timestamptz, v_name);
    execute v_move;
    if p_day between pgqueue_clock()::date - 1 and pgqueue_clock()::date + 1 then
        lock table only pgqueue_attempt in share row exclusive mode;
    end if;
    lock table pgqueue_attempt_default in access exclusive mode;
    execute v_move;
    execute format(
        'alter table pgqueue_attempt attach partition %I for values from (%L) to (%L)',
        v_name, p_day::timestamptz, (p_day + 1)::timestamptz);
    return true;
end
$$\;
create or replace function pgqueue_attempt_drop(p_day date, p_fingerprint text) returns boolean
language plpgsql
set search_path from current
set timezone = 'UTC'
set lock_timeout = '200ms'
as $$
-- Drops the history of one past day (UTC) if it is still what was copied: p_fingerprint is the fingerprint of the copy,
-- as pgqueue_attempt_fingerprint returns it.  Returns true when the day was dropped, and false when nothing was done,
-- because the day has no partition or its content differs.
-- Reads the day before it takes a lock: ACCESS EXCLUSIVE on pgqueue_attempt, for an instant at the end.  It recognizes
-- rows that were written in between by their transaction, which was not over at the beginning.  When the lock cannot
-- be had within lock_timeout, the function raises an error: try again later.
-- Call pgqueue_child_keep in transactions of its own before, until it returns 0: a session that waits for the lock may
-- have a snapshot from before this call, and finds the ends of children neither in the day nor where they are kept.
declare
    v_name text := 'pgqueue_attempt_' || to_char(p_day, 'YYYYMMDD');
    v_partition regclass;
    v_running bigint := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
begin
    select i.inhrelid into v_partition from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'pgqueue_attempt'::regclass and c.relname = v_name;
    if v_partition is null or p_day >= pgqueue_clock()::date
        or pgqueue_attempt_fingerprint(p_day) is distinct from p_fingerprint then
        return false;
    end if;
    while pgqueue_child_keep(p_day) > 0 loop  -- without the lock, because it may look at many waiting messages
    end loop;
    lock table pgqueue_attempt in access exclusive mode;
    if exists (
        select from pgqueue_attempt a
        where a.finished_at >= p_day and a.finished_at < p_day + 1 and a.transaction_id >= v_running
    ) then
        return false;
    end if;
    execute format('drop table %s', v_partition);
    return true;
end
$$\;
create or replace function pgqueue_message_ended() returns trigger
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Records in pgqueue_ended the messages that a statement has deleted and that others wait for.  It is a trigger, so
-- that it covers every way to end messages, a delete by hand included.  Where no message waits for one in the range of
-- these ids, it costs one index probe, however many they are.
-- The queries of this function see what was committed before they begin, and they begin after the rows were deleted.
-- pgqueue_message_settle relies on that order: see there.  In a transaction whose snapshot is older (repeatable read) they
-- do not, so there the function records every id, and wakes all workers that rest: they look at such records.
-- Writes pgqueue_ended; wakes a sleeping worker for each queue with waiting messages.
declare
    v_waiting record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        insert into pgqueue_ended (message_id, look_at) select g.id, pgqueue_now() from gone g;
        perform pg_notify('pgqueue_' || r.id, (select min(g.queue) from gone g))
        from (
            select w.id from pgqueue_worker w where w.silent_until is not null and octet_length(w.id) < 56 limit 100
        ) as r;
        return null;
    end if;
    if not exists (
        select from (select min(g.id) as first, max(g.id) as last from gone g) as r
        cross join lateral (
            select from pgqueue_message m where m.awaited_id between r.first and r.last limit 1
        ) as w
    ) then
        return null;
    end if;
    for v_waiting in
        with told as (
            insert into pgqueue_ended (message_id, look_at)
            select g.id, pgqueue_now() from gone g
            where (select true from pgqueue_message m where m.awaited_id = g.id limit 1)
            order by g.id
            returning message_id
        )
        select distinct w.queue, w.raw
        from told t
        cross join lateral (
            select m.queue, m.task is null as raw from pgqueue_message m where m.awaited_id = t.message_id limit 1
        ) as w
    loop
        perform pgqueue_worker_wake(v_waiting.queue, not v_waiting.raw);
    end loop;
    return null;
end
$$\;

create or replace trigger pgqueue_message_ended after delete on pgqueue_message
referencing old table as gone
for each statement
execute function pgqueue_message_ended()\;
create or replace function pgqueue_message_complete(
    p_ids bigint[],
    p_attempts integer[],
    p_worker text,
    p_results jsonb[] default null,
    p_started_ats timestamptz[] default null,
    p_finished_ats timestamptz[] default null
) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Ends attempts as succeeded: the messages leave the queue and are appended to the history.  Returns the ids of the
-- ended attempts; an id that is missing in the result was not the caller's any more, and nothing happened to it.
-- The arrays are parallel and sorted by id.  Row locks are taken in the order of ids (as in every function that
-- locks several messages), so that calls never deadlock with each other.
-- Writes pgqueue_message and pgqueue_attempt in one statement.
--
-- The fence does not name unlock_at: worker is enough (it is null when the message is not locked), and a condition
-- on unlock_at would let the planner use pgqueue_message_locked_ix and read every locked row.  The session keeps
-- the plan: to make it took as long as to end an attempt.
begin
    return query
    with given as materialized (
        select *
        from unnest(p_ids, p_attempts, p_results, p_started_ats, p_finished_ats)
            as g (id, attempt, result, started_at, finished_at)
    ),
    ended as (
        delete from pgqueue_message m
        using given g
        where m.id = any (p_ids)
          and m.id = g.id
          and m.attempt = g.attempt
          and m.worker = p_worker
        returning m.*, g.result, g.started_at as begun_at, g.finished_at
    )
    insert into pgqueue_attempt (
        message_id, dequeue_at, created_at, started_at, finished_at, attempt, max_attempts, priority, final, status,
        queue, channel, task, unique_key, worker, result, content, headers)
    select e.id, e.dequeue_at, e.created_at, coalesce(e.begun_at, e.locked_at),
           coalesce(e.finished_at, pgqueue_clock()),
           e.attempt, e.max_attempts, e.priority, true, 'succeeded',
           e.queue, e.channel, e.task, e.unique_key, e.worker,
           case when pgqueue_message_is_large(e.result) then pgqueue_message_readable(e.result, 'result')
                else e.result end,
           e.content, e.headers
    from ended e
    order by e.id
    returning message_id;
end
$$\;

create or replace function pgqueue_message_complete(
    p_id bigint,
    p_attempt integer,
    p_worker text default null,
    p_result jsonb default null
) returns boolean
language sql
set search_path from current
as $$
    -- Ends one attempt as succeeded.  Returns true when done, false when the attempt is not the caller's any more.
    select exists (
        select from pgqueue_message_complete(
            array[p_id], array[p_attempt], coalesce(p_worker, pgqueue_session_worker()), array[p_result]))
$$\;
create or replace function pgqueue_message_progress(p_id bigint, p_attempt integer, p_worker text, p_progress jsonb)
returns boolean
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Records the progress of a message that the caller holds: {"fraction": 0.4, "text": "..."}.  Returns true when done,
    -- false when the attempt is not the caller's any more.  Locks one row.
    with said as (
        update pgqueue_message m set progress = pgqueue_message_readable(p_progress, 'progress')
        where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
        returning m.id
    )
    select exists (select from said)
$$\;
create or replace function pgqueue_message_settle(p_limit integer default 100, p_brief boolean default true) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
-- Checks messages that wait for others (pgqueue_message_create_after), and returns how many need not wait any more:
-- they are ready now, or cancelled where their policy requires that.  It does the same for suspended messages whose
-- event has been emitted (pgqueue_event_arrive).  Checks up to p_limit messages whose check_at has
-- come, and up to p_limit that wait for ended messages (pgqueue_ended): each of these gets an equal share, and the
-- next calls continue with the rest.  It reads some megabytes of after_ids in all, however large they are.
-- A message waits for one of the others at a time, awaited_id.  When awaited_id is written, the other message may be
-- ending already, and the transaction that ends it may not see the waiting one.  So check_at stays near, until a check
-- in a later transaction has locked the row of the other message for a moment: a transaction that deletes it
-- afterwards does see the waiting messages (pgqueue_message_ended).  From then on check_at is null, and however many
-- messages wait, none is checked before something has happened.
-- p_brief: the caller's transaction ends right after this.  One that stays open does not lock the other row, because
-- the end of the other message would wait for it; the messages that it checks have a check_at for the next call.
-- pgqueue_message_dequeue calls this when a message has ended; workers call it several times a second for the rest.
-- Locks rows of pgqueue_message without waiting for any; writes pgqueue_message, pgqueue_ended and pgqueue_attempt; wakes a
-- sleeping worker for each message that became ready.
declare
    v_now bigint := pgqueue_now();
    v_clean boolean;
    v_ended bigint[];
    v_events text[];
    v_message pgqueue_message;
    v_awaited bigint[] := '{}';
    v_left bigint := 4000000;  -- bytes of after_ids
    v_looks integer := 0;
    v_settled integer := 0;
begin
    v_clean := p_brief
        and pg_current_xact_id_if_assigned() is null and current_setting('transaction_isolation') = 'read committed';
    with taken as (
        delete from pgqueue_ended e
        where e.ctid = any (array(
            select t.ctid from pgqueue_ended t
            where t.look_at <= v_now or t.look_at > v_now + 60000  -- nobody puts it off for so long: the clock was ahead
            order by t.look_at, t.id limit p_limit
            for update skip locked
        ))
        returning e.message_id, e.event
    )
    select array_agg(distinct t.message_id) filter (where t.event is null), array_agg(distinct t.event) filter (where t.event is not null)
    into v_ended, v_events
    from taken t;

    for v_message in
        select m.* from pgqueue_message m
        where m.check_at is not null and m.check_at <= v_now
        order by m.check_at
        limit p_limit
        for update skip locked
    loop
        -- While the awaited message is there, one check is enough for all that wait for it.
        continue when v_message.awaited_id = any (v_awaited);
        exit when v_left <= 0;
        v_left := v_left - pg_column_size(v_message.after_ids);
        v_settled := v_settled + pgqueue_message_look(v_message, v_clean)::integer;
        v_awaited := v_awaited || (select d.id from pgqueue_message d where d.id = v_message.awaited_id);
    end loop;

    if v_ended is not null then
        for v_message in
            select w.*
            from unnest(v_ended) as e (id)
            cross join lateral (
                select m.* from pgqueue_message m
                where m.awaited_id = e.id
                limit ceil(p_limit::numeric / cardinality(v_ended))
                for update skip locked
            ) as w
        loop
            exit when v_left <= 0 and v_looks > 0;  -- one of them in each call, whatever the first part has read
            v_left := v_left - pg_column_size(v_message.after_ids);
            v_looks := v_looks + 1;
            v_settled := v_settled + pgqueue_message_look(v_message, v_clean)::integer;
        end loop;
        -- Where other sessions have locked all the rest, it is too early.
        insert into pgqueue_ended (message_id, look_at)
        select e.id, v_now + case when v_looks = 0 then 100 else 0 end
        from unnest(v_ended) as e (id)
        where (select true from pgqueue_message m where m.awaited_id = e.id limit 1)
          and (select true from pgqueue_message d where d.id = e.id) is null;
    end if;
    if v_events is not null then
        v_settled := v_settled + pgqueue_event_arrive(v_events, p_limit);
    end if;
    return v_settled;
end
$$\;
create or replace function pgqueue_session_worker() returns text
language sql stable
as $$
    -- Returns a worker name for a consumer that gives none: it stands for this database session and is never used
    -- again, because it contains the start time of the session.  A role of "set role" may not see that time: the
    -- session keeps the name that it has had, in the setting pgqueue.session, or gets one of the present time.
    select coalesce(
        nullif(current_setting('pgqueue.session', true), ''),
        set_config(
            'pgqueue.session',
            'session-' || to_hex(floor(extract(epoch from coalesce(s.backend_start, clock_timestamp())) * 1000000)::bigint)
                || '-' || pg_backend_pid(),
            false))
    from (select) as one
    left join pg_stat_get_activity(pg_backend_pid()) as s on true
$$\;
create or replace function pgqueue_worker_number(p_id text) returns bigint
language sql stable
set search_path from current
as $$
    -- Returns the number of the advisory lock that the sessions of a worker hold (pgqueue_worker_hold).  It is made from
    -- the oid of this queue's table, as in pgqueue_advisory_lock: the workers of several queues of a database never
    -- share one.
    select hashtextextended('pgqueue_message'::regclass::oid || ' worker ' || p_id, 0)
$$\;
create or replace function pgqueue_worker_hold(p_id text) returns boolean
language plpgsql
set search_path from current
as $$
-- Takes the advisory lock of a worker for the caller's session, until that ends, and returns whether the session has it.
-- While any session holds it, nobody takes the worker for dead (pgqueue_worker_expire).  A worker that has it says so by
-- p_held of pgqueue_worker_seen, and calls this again in each new session, and under each new name.
-- The lock is shared, so several sessions of a worker hold it, the new one while the server still keeps the broken one.
-- Waits for nobody.  Every login of the database may hold the lock: one that holds it alone keeps the worker from having
-- it, and one that holds it for a dead worker makes that look alive.  Then the locks of the messages decide.
-- Not for sessions of a transaction pooler, which belong to no worker.
begin
    return coalesce(pg_try_advisory_lock_shared(pgqueue_worker_number(p_id)), false);
exception
    when feature_not_supported or out_of_memory then  -- out_of_memory: of the server's table of locks
        return false;
end
$$\;
create or replace function pgqueue_worker_expire(
    p_silent_ms bigint default 6000,
    p_limit integer default 100,
    p_return_ms bigint default 10000
) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Takes messages away from workers that are gone, without waiting for their locks to expire, and returns how many.  Each
-- such attempt is recorded as lost, as by pgqueue_message_expire.  Deletes the rows of these workers when they hold
-- nothing any more.
-- A worker is gone if it had said that its sessions hold its advisory lock (pgqueue_worker_hold), no session holds it,
-- and the worker has not been seen for p_silent_ms: one whose connection has broken may come back within that time.  A
-- time that is more than ten minutes ahead is of a clock that was wrong, and is no such sign of life.
-- Locks say nothing of what was before the server was started, or before it restarted its processes after a crash: then
-- all sessions ended at once, and the workers have p_return_ms from that moment to come back.  They say nothing either of
-- workers that were seen on another server while this one ran, as it does after a standby was promoted: their messages'
-- locks decide.  So they do for workers that rest (silent_until), which hold nothing.
-- Looks into pg_locks and takes no advisory lock, so it is in the way of no worker, and of no other look.  Reads them
-- only if a worker has not been seen for that long.  A hundred workers and p_limit messages at each call.
-- Locks rows of pgqueue_message in the order of ids, then rows of pgqueue_worker, without waiting for any; writes
-- pgqueue_message, pgqueue_attempt and pgqueue_worker.
declare
    v_message pgqueue_message;
    v_started_at timestamptz := pg_postmaster_start_time();
    -- A crash throws the statistics away.
    v_up_at timestamptz := greatest(v_started_at, pg_stat_get_bgwriter_stat_reset_time());
    v_up_for_long boolean := clock_timestamp() - v_up_at > p_return_ms * interval '1 millisecond';
    v_seen_before timestamptz := pgqueue_clock() - p_silent_ms * interval '1 millisecond';
    v_seen_until timestamptz := pgqueue_clock() + interval '10 minutes';
    v_workers text[];
    v_count integer := 0;
begin
    select array_agg(w.id) into v_workers
    from pgqueue_worker w
    where w.server_started_at is not null and w.silent_until is null and w.seen_at not between v_seen_before and v_seen_until;
    if v_workers is null then
        return 0;
    end if;
    with held as materialized (
        select (l.classid::bigint << 32) | l.objid::bigint as number
        from pg_locks l
        where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
    )
    select array_agg(g.id) into v_workers
    from (
        select w.id
        from pgqueue_worker w
        where w.id = any (v_workers) and w.server_started_at is not null and w.silent_until is null
          and w.seen_at not between v_seen_before and v_seen_until
          and case
              when w.server_started_at = pgqueue_to_epoch(v_started_at) then w.seen_at between v_up_at and v_seen_until or v_up_for_long
              else (w.seen_at < v_started_at or w.seen_at > v_seen_until) and v_up_for_long
              end
          and not exists (select from held h where h.number = pgqueue_worker_number(w.id))
        order by w.seen_at, w.id
        limit 100
    ) as g;
    if v_workers is null then
        return 0;
    end if;
    for v_message in
        select m.* from pgqueue_message m
        where m.unlock_at is not null and m.worker = any (v_workers)
        order by m.id
        limit p_limit
        for update skip locked
    loop
        perform pgqueue_message_lose(
            v_message,
            format('worker %s is gone: no session of it is left, and it was not seen for %s s', v_message.worker,
                   round(p_silent_ms / 1000.0)),
            false);
        v_count := v_count + 1;
    end loop;
    -- A row that another session has locked is left to the next call.  A worker that has come back meanwhile stays.
    delete from pgqueue_worker w
    where w.id = any (array(
            select d.id from pgqueue_worker d
            where d.id = any (v_workers) and d.seen_at not between v_seen_before and v_seen_until
            order by d.id
            for update skip locked))
      and not exists (select from pgqueue_message m where m.unlock_at is not null and m.worker = w.id);
    return v_count;
end
$$\;
drop function if exists pgqueue_attempt_maintain(integer, integer)\;
create or replace function pgqueue_attempt_maintain(
    p_days_ahead integer default 7,
    p_days_kept integer default null,
    p_lake_days integer default 7
) returns integer
language plpgsql
set search_path from current
set timezone = 'UTC'
set lock_timeout = '50ms'
as $$
-- Maintains the partitions of the history: makes those from today to p_days_ahead days ahead, and drops those that are
-- older than p_days_kept whole days (null: keeps all).  Returns how many were made or dropped, and how many messages were
-- prepared for that (pgqueue_child_keep).
-- Attempts of days on which nothing called this are in pgqueue_attempt_default.  Those days get partitions too, because
-- retention drops partitions and would never reach the rows.  One call takes as many of those days as have 10,000 rows
-- together, or one.  Call it again as long as it does anything.
-- Any number of workers may call it at any time: one works, the others return 0.  When a lock cannot be had within
-- lock_timeout, that step and what comes after it are left for the next call.  Traffic queues behind a session that
-- waits for such a lock, so it is stopped for at most twice the lock_timeout.  Each step that was done stays done.
-- A day with rows that a lake in pgqueue_lake has not read yet waits for it for p_lake_days more days.  Then it is dropped,
-- with a warning, and the row of the lake counts what it has missed.
-- A day that cannot be made or dropped, as an event trigger refuses, a right is missing, or a view needs it, keeps no
-- other day away.  The call that finds nothing else to do raises the error.
-- Drops at most 10 partitions a call: from the first drop to the end no other session can use pgqueue_attempt.
-- Ids are used once.  Tools that copy a database or load fixtures set a sequence to the largest id of its table, which the
-- ids of finished messages are not in: this sets it past those of the history again, with a warning.  A copy by logical
-- replication has no sequences: this sets those of the queue's other tables, too.
declare
    v_day date;
    v_today date := pgqueue_clock()::date;
    v_changed integer := 0;
    v_partition record;
    v_lake record;
    v_unread bigint;
    v_ids record;
    v_days integer := 0;
    v_kept integer := 0;
    v_prepared date := '-infinity';
    v_refused date[] := '{}';
    v_dropped boolean := false;
    v_behind boolean := false;
    v_refusal text;
    v_detail text;
    v_sqlstate text;
    v_foreign_id constant bigint := 4503599627370496;  -- no sequence gets there: somebody has written it by hand
begin
    if p_days_ahead not between 0 and 366 or p_days_kept < 0 or p_lake_days < 0 then
        raise exception 'p_days_ahead is %, p_days_kept is %, and p_lake_days is %', p_days_ahead, p_days_kept, p_lake_days
            using errcode = 'invalid_parameter_value', hint = 'They must be numbers of days: 0 to 366 ahead, and 0 or more kept.';
    end if;
    -- This is no advisory lock, because every login may hold one: this lock needs a right to change the history.  A new
    -- partition needs it anyway, and no traffic waits for it.
    begin
        lock table only pgqueue_attempt in share update exclusive mode nowait;
    exception
        when lock_not_available then
            return 0;
    end;
    -- This reads every day, so it needs a lock for each of them and for their indexes.  The error at its end lets go of
    -- them, because what follows needs room for its own.  It does not undo setval.
    begin
        for v_ids in
            select pg_get_serial_sequence('pgqueue_message', 'id')::regclass as sequence, greatest(
                (select max(m.id) from pgqueue_message m where m.id < v_foreign_id),
                (select max(a.message_id) from pgqueue_attempt a where a.message_id < v_foreign_id),
                (select max(s.message_id) from pgqueue_step s where s.message_id < v_foreign_id)) as known
            union all
            select pg_get_serial_sequence(o.name, 'id')::regclass, o.known
            from (values
                ('pgqueue_attempt', (select max(a.id) from pgqueue_attempt a where a.id < v_foreign_id)),
                ('pgqueue_binding', (select max(b.id) from pgqueue_binding b where b.id < v_foreign_id)),
                ('pgqueue_edit', (select max(e.id) from pgqueue_edit e where e.id < v_foreign_id)),
                ('pgqueue_rollup', (select max(r.id) from pgqueue_rollup r where r.id < v_foreign_id)),
                ('pgqueue_report_hour', (select max(r.id) from pgqueue_report_hour r where r.id < v_foreign_id)),
                ('pgqueue_report_queue', (select max(r.id) from pgqueue_report_queue r where r.id < v_foreign_id)),
                ('pgqueue_report_error', (select max(r.id) from pgqueue_report_error r where r.id < v_foreign_id))
            ) as o (name, known)
        loop
            continue when coalesce(pg_sequence_last_value(v_ids.sequence), 0) >= coalesce(v_ids.known, 0);
            -- Far enough that no other session is past it by now.
            perform setval(v_ids.sequence, v_ids.known + 1000);
            v_behind := true;
            raise warning 'the sequence % was behind the ids that are in use, and continues after %',
                v_ids.sequence, v_ids.known + 1000;
        end loop;
        if v_behind then  -- only then, because no index finds its largest id
            select s.sequence, coalesce(max(a.id), 0) as known into v_ids
            from (select pg_get_serial_sequence('pgqueue_arrival', 'id')::regclass as sequence) as s
            left join pgqueue_arrival a on true group by 1;
            perform setval(v_ids.sequence, greatest(v_ids.known, coalesce(pg_sequence_last_value(v_ids.sequence), 0)) + 1000);
        end if;
        raise exception using errcode = 'PQ001', message = 'all ids are looked at';
    exception
        when sqlstate 'PQ001' then  -- all ids are looked at
            null;
        when lock_not_available then  -- a session changes a partition: the next call looks at them
            null;
        when out_of_memory then
            raise warning 'the ids of the history are not looked at: the server has no room for a lock of each day'
                using hint = 'Keep fewer days, or raise max_locks_per_transaction.';
    end;
    begin
        for v_day in
            with past as (
                select g.day, g.rows, exists (
                    select from pg_class c
                    where c.relname = 'pgqueue_attempt_' || to_char(g.day, 'YYYYMMDD')
                      and c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'pgqueue_attempt'::regclass)
                ) as is_detached
                from (
                    select d.finished_at::date as day, count(*) as rows
                    from pgqueue_attempt_default d
                    where d.finished_at < v_today::timestamptz and isfinite(d.finished_at)
                    group by 1) as g
            )
            select v_today + n from generate_series(0, p_days_ahead) as n
            union
            (select s.day
             from (select o.day, o.rows, sum(o.rows) over (order by o.day) as moved from past o where not o.is_detached) as s
             where s.moved <= 10000 or s.moved = s.rows
             order by 1 limit 30)  -- the next call makes the others: each partition takes locks until the end
            union
            (select o.day from past o where o.is_detached order by 1 limit 1)  -- it cannot be moved, and its error says so
            order by 1
        loop
            begin
                v_changed := v_changed + pgqueue_attempt_partition(v_day)::integer;
            exception
                when lock_not_available then
                    exit;
                when out_of_memory then
                    raise warning 'the day % is not made: the server has no room for its locks', v_day
                        using hint = 'Keep fewer days, or raise max_locks_per_transaction.';
                    exit;
                when others then
                    get stacked diagnostics
                        v_refusal = message_text, v_detail = pg_exception_detail, v_sqlstate = returned_sqlstate;
            end;
        end loop;
    exception
        when lock_not_available then  -- held by a session that reads the default partition
            null;
    end;
    for v_partition in
        select c.oid::regclass as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day  -- it may be in another schema
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'pgqueue_attempt'::regclass
          and c.relname ~ '^pgqueue_attempt_[0-9]{8}$'
          and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_days_kept
        order by c.relname
    loop
        exit when v_days = 10;
        if v_partition.day > v_prepared then
            exit when v_dropped;  -- this may take a while, and nobody can end an attempt behind the lock of a drop
            for v_day in
                select v_partition.day + n from generate_series(0, 9) as n where v_partition.day + n < v_today - p_days_kept
            loop
                begin
                    v_kept := v_kept + pgqueue_child_keep(v_day);
                    exit when v_kept >= 10000;
                    v_prepared := v_day;
                exception
                    when lock_not_available then
                        exit;
                    when others then
                        v_prepared := v_day;
                        v_refused := v_refused || v_day;
                        get stacked diagnostics
                            v_refusal = message_text, v_detail = pg_exception_detail, v_sqlstate = returned_sqlstate;
                end;
            end loop;
            -- The next call goes on, also where all days are prepared: a session that waits for the lock of the drop may
            -- have a snapshot from before it, and would find the ends of children neither here nor there.
            exit when v_partition.day > v_prepared or v_kept > 0;
        end if;
        continue when v_partition.day = any (v_refused);
        v_days := v_days + 1;
        begin
            v_unread := 0;
            for v_lake in select l.id, l.location, l.position from pgqueue_lake l order by l.id loop
                execute format('select count(*) from %s a where a.transaction_id >= $1', v_partition.name)
                    into v_unread using v_lake.position;
                continue when v_unread = 0;
                exit when v_partition.day >= v_today - p_days_kept - p_lake_days;
                raise warning 'the history of % is dropped, and the lake % had not read % attempts of it',
                    v_partition.day, v_lake.location, v_unread;
                update pgqueue_lake l
                set missed_attempts = l.missed_attempts + v_unread, missed_at = pgqueue_clock(),
                    missed_from = least(l.missed_from, v_partition.day),
                    missed_until = greatest(l.missed_until, v_partition.day)
                where l.id = v_lake.id;
                v_unread := 0;
            end loop;
            continue when v_unread > 0;
            execute format('drop table %s', v_partition.name);
            v_changed := v_changed + 1;
            v_dropped := true;
        exception
            when lock_not_available then
                exit;  -- and the lock of pgqueue_attempt is released here
            when out_of_memory then  -- the locks of those that were dropped are held until the end
                if v_changed = 0 then
                    raise;
                end if;
                exit;
            when others then
                v_days := v_days - 1;
                get stacked diagnostics
                    v_refusal = message_text, v_detail = pg_exception_detail, v_sqlstate = returned_sqlstate;
        end;
    end loop;
    v_changed := v_changed + v_kept;
    if v_refusal is not null and v_changed = 0 then
        raise exception using errcode = v_sqlstate, message = concat_ws(': ', v_refusal, nullif(v_detail, ''));
    end if;
    return v_changed;
end
$$\;
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
$$\;
create or replace function pgqueue_lake_forget(p_lake text) returns integer
language sql
set search_path from current
as $$
    -- Forgets the lakes with this id or location, so that retention does not wait for them.  Returns how many.  The next
    -- export to such a lake records it again.  Writes pgqueue_lake.
    with forgotten as (delete from pgqueue_lake l where l.id = p_lake or l.location = p_lake returning 1)
    select count(*)::integer from forgotten
$$\;
create or replace function pgqueue_attempt_error_group(p_class text, p_message text, p_traceback text) returns text
language sql immutable parallel safe
set search_path from current
as $$
    -- Returns the group of an error: equal for errors of one class that come from the same function of the same file,
    -- whatever the line, so that a deploy that moves lines makes no new group.  Without a traceback the message counts,
    -- with its numbers, quoted texts, hexadecimal words and the names of workers left out.  Of an unknown task only its path
    -- counts, which is the first in the message.
    select left(md5(concat_ws(E'\n', coalesce(p_class, ''), coalesce(
        case when p_class = 'django_pgqueue.exceptions.UnknownTask' then coalesce(
            substring(left(p_message, 300) from '^No worker has known the task ([^ ]+) for '),
            substring(left(p_message, 300) from '^(?:The task )?''([^'']+)'''))
        end,
        (select substring(t.place from E'([^/\\\\"]+"), line')
                || substring(t.place from E', in ([^\n]+)$')
         from (select substring(right(p_traceback, 4000) from E'.*(File "[^"]+", line [0-9]+, in [^\n]+)') as place) as t),
        regexp_replace(left(p_message, 300), E'\\mworker [^ "'']+|"[^"]*"|''[^'']*''|\\m(0x)?[0-9a-fA-F-]*[0-9][0-9a-fA-F-]*\\M', '?', 'g'),
        ''))), 12)
$$\;
create or replace function pgqueue_edit_check(p_action text, p_filter jsonb, p_parameters jsonb default null) returns void
language plpgsql
set search_path from current
as $$
-- Raises an error unless this is an edit that pgqueue_edit_step understands: a key that it does not know would let it
-- change more than was meant.  Times are epoch ms.  p_parameters null: only the filter is checked.  Reads no table.
declare
    v_texts text[] := array['queue', 'task', 'task_contains', 'channel', 'status', 'error_group'];
    v_numbers text[] := array['priority_from', 'priority_until', 'created_from', 'created_until'];
    v_statuses text[];
    v_wanted text;
    v_key text;
    v_value jsonb;
    v_bad text;
begin
    v_wanted := case p_action when 'postpone' then 'run_at' when 'move' then 'queue' when 'prioritise' then 'priority' end;
    if p_action in ('run_now', 'postpone', 'cancel', 'delete', 'move', 'prioritise') then
        v_texts := v_texts || array['error_contains'];
        v_numbers := v_numbers || array['run_at_from', 'run_at_until'];
        v_statuses := array['scheduled', 'ready', 'running', 'expired'];
    elsif p_action = 'enqueue_again' then
        v_texts := v_texts || array['error', 'error_class', 'error_contains'];
        v_numbers := v_numbers || array['finished_from', 'finished_until'];
        v_statuses := array['succeeded', 'failed', 'cancelled', 'lost'];
    else
        raise exception 'p_action is %', coalesce(quote_literal(p_action), 'null')
            using errcode = 'invalid_parameter_value',
                  hint = 'It is run_now, postpone, cancel, delete, move, prioritise or enqueue_again.';
    end if;
    if jsonb_typeof(p_filter) is distinct from 'object' or jsonb_typeof(p_parameters) <> 'object' then
        raise exception 'p_filter or p_parameters is no JSON object'
            using errcode = 'invalid_parameter_value', hint = 'Everything is {}.';
    end if;

    for v_key, v_value in select * from jsonb_each(p_filter) loop
        v_bad := case
            when v_key = 'raw' and jsonb_typeof(v_value) <> 'boolean' then 'must be true or false'
            when v_key = 'argument' and jsonb_typeof(v_value) not in ('string', 'number', 'boolean')
                then 'must be a text, a number, or true or false'
            when v_key in ('raw', 'argument') then null
            when v_key = any (v_texts) and jsonb_typeof(v_value) <> 'string' then 'must be a text'
            when v_key = 'status' and not v_value #>> '{}' = any (v_statuses)
                then 'is one of ' || array_to_string(v_statuses, ', ')
            when v_key = any (v_texts) then null
            when v_key = any (v_numbers) and (jsonb_typeof(v_value) <> 'number' or v_value::text !~ '^-?[0-9]{1,18}$')
                then 'must be a whole number'
            when v_key = any (v_numbers) then null
            else 'is no part of a filter for ' || p_action end;
        if v_bad is not null then
            raise exception 'p_filter: % %', quote_literal(left(v_key, 100)), v_bad
                using errcode = 'invalid_parameter_value',
                      hint = 'Known: raw, argument, ' || array_to_string(v_texts || v_numbers, ', ') || '.';
        end if;
    end loop;

    if p_parameters is null then
        return;
    end if;
    select k into v_key from jsonb_object_keys(p_parameters) as k where k is distinct from v_wanted limit 1;
    if found or (v_wanted is not null and not p_parameters ? v_wanted) then
        raise exception 'p_parameters of % must be %', p_action, coalesce('{"' || v_wanted || '": ...}', '{}')
            using errcode = 'invalid_parameter_value';
    end if;
    v_value := p_parameters -> v_wanted;
    if p_action = 'move' and (jsonb_typeof(v_value) <> 'string' or octet_length(v_value #>> '{}') not between 1 and 255
                              or v_value #>> '{}' ~ '[\u0001-\u001f\u007f]')
       or p_action = 'postpone' and v_value::text !~ '^-?[0-9]{1,15}$'
       or p_action = 'prioritise' and (v_value::text !~ '^-?[0-9]{1,3}$' or v_value::text::integer not between -100 and 100)
    then
        raise exception 'p_parameters: % is %', v_wanted, left(v_value::text, 100)
            using errcode = 'invalid_parameter_value',
                  hint = 'A queue is a name of up to 255 bytes without control characters, a priority a whole number from -100 to 100, and run_at epoch ms.';
    end if;
end
$$\;
create or replace function pgqueue_edit_messages(
    p_filter jsonb,
    p_after bigint,
    p_until bigint,
    p_limit integer default 1000,
    out p_ids bigint[],
    out p_last bigint
)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Looks at the first p_limit messages with ids after p_after and up to p_until.  Returns the ids of those that match
    -- p_filter (pgqueue_edit_check), and the last id that it looked at: p_until when there are no more.
    -- argument is a value anywhere in the content; a number also matches a text of it.  Locks nothing.
    select coalesce(array_agg(w.id order by w.id) filter (where w.fits), '{}'),
           case when count(*) < p_limit then p_until else max(w.id) end
    from (
        select m.id,
               (f.queue is null or m.queue = f.queue)
               and (f.task is null or m.task = f.task)
               and (f.raw is null or (m.task is null) = f.raw)
               and (f.task_contains is null or strpos(lower(m.task), lower(f.task_contains)) > 0)
               and (f.channel is null or m.channel = f.channel)
               and (f.status is null or f.status = case
                    when m.unlock_at > pgqueue_now() then 'running'
                    when m.unlock_at is not null then 'expired'
                    when m.dequeue_at > pgqueue_now() then 'scheduled'
                    else 'ready' end)
               and (f.priority_from is null or m.priority >= f.priority_from)
               and (f.priority_until is null or m.priority <= f.priority_until)
               and (f.created_from is null or m.created_at >= pgqueue_from_epoch(f.created_from))
               and (f.created_until is null or m.created_at <= pgqueue_from_epoch(f.created_until))
               and (f.run_at_from is null or m.dequeue_at >= f.run_at_from)
               and (f.run_at_until is null or m.dequeue_at <= f.run_at_until)
               and (f.error_contains is null or strpos(lower(left(m.last_error, 1000)), lower(f.error_contains)) > 0)
               and (f.error_group is null or m.last_error is not null and exists (
                    select from pgqueue_attempt a
                    where a.message_id = m.id and a.status in ('failed', 'retried', 'lost')
                      and pgqueue_attempt_error_group(a.error_class, a.error_message, a.traceback) = f.error_group))
               and (f.argument is null or jsonb_path_exists(
                    m.content, '$.** ? (@ == $value || @ == $text)',
                    jsonb_build_object('value', f.argument, 'text', f.argument #>> '{}'))) as fits
        from jsonb_to_record(p_filter) as f (
            queue text, task text, raw boolean, task_contains text, channel text, status text, priority_from bigint,
            priority_until bigint, created_from bigint, created_until bigint, run_at_from bigint, run_at_until bigint,
            error_contains text, error_group text, argument jsonb)
        cross join lateral (
            select m.* from pgqueue_message m
            where m.id > p_after and m.id <= p_until
            order by m.id limit p_limit
        ) as m
    ) as w
$$\;
create or replace function pgqueue_edit_attempts(
    p_filter jsonb,
    p_after bigint,
    p_until bigint,
    p_limit integer default 1000,
    out p_ids bigint[],
    out p_last bigint
)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Looks at the first p_limit attempts with ids after p_after and up to p_until.  Returns the ids of those that were
    -- the last of their message, have its content, and match p_filter (pgqueue_edit_check), and the last id that it
    -- looked at: p_until when there are no more.  error is a part of the class or of the message.  Locks nothing.
    select coalesce(array_agg(w.id order by w.id) filter (where w.fits), '{}'),
           case when count(*) < p_limit then p_until else max(w.id) end
    from (
        select a.id,
               a.final and a.content is not null
               and (f.queue is null or a.queue = f.queue)
               and (f.task is null or a.task = f.task)
               and (f.raw is null or (a.task is null) = f.raw)
               and (f.task_contains is null or strpos(lower(a.task), lower(f.task_contains)) > 0)
               and (f.channel is null or a.channel = f.channel)
               and (f.status is null or a.status = f.status)
               and (f.priority_from is null or a.priority >= f.priority_from)
               and (f.priority_until is null or a.priority <= f.priority_until)
               and (f.created_from is null or a.created_at >= pgqueue_from_epoch(f.created_from))
               and (f.created_until is null or a.created_at <= pgqueue_from_epoch(f.created_until))
               and (f.finished_from is null or a.finished_at >= pgqueue_from_epoch(f.finished_from))
               and (f.finished_until is null or a.finished_at <= pgqueue_from_epoch(f.finished_until))
               and (f.error is null or strpos(lower(a.error_class), lower(f.error)) > 0
                    or strpos(lower(a.error_message), lower(f.error)) > 0)
               and (f.error_class is null or strpos(lower(a.error_class), lower(f.error_class)) > 0)
               and (f.error_contains is null
                    or strpos(lower(left(a.error_message, 1000)), lower(f.error_contains)) > 0)
               and (f.error_group is null or a.status in ('failed', 'lost')
                    and pgqueue_attempt_error_group(a.error_class, a.error_message, a.traceback) = f.error_group)
               and (f.argument is null or jsonb_path_exists(
                    a.content, '$.** ? (@ == $value || @ == $text)',
                    jsonb_build_object('value', f.argument, 'text', f.argument #>> '{}'))) as fits
        from jsonb_to_record(p_filter) as f (
            queue text, task text, raw boolean, task_contains text, channel text, status text, priority_from bigint,
            priority_until bigint, created_from bigint, created_until bigint, finished_from bigint,
            finished_until bigint, error text, error_class text, error_contains text, error_group text, argument jsonb)
        cross join lateral (
            select a.* from pgqueue_attempt a
            where a.id > p_after and a.id <= p_until
            order by a.id limit p_limit
        ) as a
    ) as w
$$\;
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
$$\;
create or replace function pgqueue_edit_stop(p_id bigint, p_stopped_by text default session_user) returns boolean
language sql
set search_path from current
as $$
    -- Stops an edit.  What it has done stays done, and pgqueue_edit_resume lets it go on.  Returns whether it was stopped:
    -- false when it has finished, or was stopped before.  Waits for the step that runs at the time.
    with stopped as (
        update pgqueue_edit e
        set stopped_at = pgqueue_clock(), stopped_by = left(p_stopped_by, 63)
        where e.id = p_id and e.finished_at is null and e.stopped_at is null
        returning e.id
    )
    select exists (select from stopped)
$$\;
create or replace function pgqueue_edit_resume(p_id bigint) returns boolean
language sql
set search_path from current
as $$
    -- Lets an edit that was stopped go on where it stood.  Returns whether it does: false when it has finished, or was
    -- not stopped.  Wakes workers that rest.
    with resumed as (
        update pgqueue_edit e
        set stopped_at = null, stopped_by = null
        where e.id = p_id and e.finished_at is null and e.stopped_at is not null
        returning e.id
    ), told as (
        select pg_notify('pgqueue_' || r.id, 'edit')
        from (
            select w.id from pgqueue_worker w where w.silent_until is not null and octet_length(w.id) < 56 limit 100
        ) as r
        where exists (select from resumed)
    )
    select exists (select from resumed) and (select count(*) >= 0 from told)
$$\;
create or replace function pgqueue_edit_change(
    p_action text,
    p_parameters jsonb,
    p_ids bigint[],
    p_filter jsonb default null,
    out p_done bigint,
    out p_asked bigint,
    out p_awaiting bigint,
    out p_skipped bigint,
    out p_locked bigint[]
)
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Does the action to the messages with these ids that allow it, and counts them.  Messages that other sessions hold at
-- the moment are left alone and returned as p_locked.  p_filter: those that do not match it any more are left alone,
-- too, and not counted.  pgqueue_edit_step calls this.
-- Locks rows of pgqueue_message in the order of ids, without waiting for any.
declare
    v_now bigint := pgqueue_now();
    v_held bigint[];
    v_first bigint;
    v_last bigint;
    v_found bigint[];
    v_wanted bigint[];
    v_free bigint[];
    v_running bigint[];
    v_run_at bigint := (p_parameters ->> 'run_at')::bigint;
    v_priority integer := (p_parameters ->> 'priority')::integer;
    v_queue text := p_parameters ->> 'queue';
    v_due_at bigint;
begin
    v_held := array(select m.id from pgqueue_message m where m.id = any (p_ids) order by m.id for no key update skip locked);
    v_found := v_held;
    if p_filter is not null then
        -- A message may have begun, or come to another queue, since it was found.  Where most ids of the range are these,
        -- one look at the range is cheaper than one at each; but nobody reads the contents of others meanwhile.
        v_first := v_held[1];
        v_last := v_held[cardinality(v_held)];
        if v_last - v_first < 10 * cardinality(v_held) and not p_filter ?| array['argument', 'error_group'] then
            v_found := array(
                select h.id from unnest(v_held) as h (id)
                intersect
                select f.id from pgqueue_edit_messages(p_filter, v_first - 1, v_last, 2147483647) as s, unnest(s.p_ids) as f (id));
        else
            v_found := array(
                select h.id from unnest(v_held) as h (id)
                cross join lateral pgqueue_edit_messages(p_filter, h.id - 1, h.id, 1) as s
                where s.p_ids <> '{}');
        end if;
    end if;
    select coalesce(array_agg(m.id) filter (where case p_action
               when 'run_now' then m.worker is null and m.after_ids is null
                    and (m.parked_at is not null or coalesce(m.alone_at, m.dequeue_at) > v_now)
               when 'postpone' then m.worker is null and m.after_ids is null and m.parked_at is null
                    and coalesce(m.alone_at, m.dequeue_at) < v_run_at
               when 'cancel' then coalesce(m.unlock_at, v_now) <= v_now
               when 'delete' then m.worker is null
               when 'move' then m.worker is null and m.queue <> v_queue
               when 'prioritise' then m.worker is null and m.priority <> v_priority
               end), '{}'),
           coalesce(array_agg(m.id) filter (where p_action = 'cancel' and m.unlock_at > v_now), '{}'),
           count(*) filter (where p_action in ('run_now', 'postpone') and m.worker is null and m.after_ids is not null)
    into v_wanted, v_running, p_awaiting
    from pgqueue_message m
    where m.id = any (v_found);
    if p_action in ('cancel', 'delete') then
        -- Who decides an approval, or records a step, lets changes pass, but no end.
        v_free := array(select m.id from pgqueue_message m where m.id = any (v_wanted) order by m.id for update skip locked);
        p_locked := array(select w from unnest(v_wanted) as w where w <> all (v_free));
        v_wanted := v_free;
    end if;

    if p_action = 'run_now' then
        select count(*) into p_done from pgqueue_message_reschedule(v_wanted);
    elsif p_action = 'postpone' then
        select count(*) into p_done from pgqueue_message_reschedule(v_wanted, v_run_at);
    elsif p_action = 'cancel' then
        select count(*) into p_done from pgqueue_message_cancel(v_wanted);
    elsif p_action = 'delete' then
        delete from pgqueue_message m where m.id = any (v_wanted);
        get diagnostics p_done = row_count;
    elsif p_action = 'move' then
        with moved as (
            update pgqueue_message m set queue = v_queue where m.id = any (v_wanted) returning m.dequeue_at
        )
        select count(*), min(w.dequeue_at) into p_done, v_due_at from moved w;
        if v_due_at <= v_now then
            perform pgqueue_worker_wake(v_queue);
        elsif v_due_at is not null then
            perform pgqueue_worker_wake_by(v_queue, null, v_due_at);
        end if;
    else
        update pgqueue_message m set priority = v_priority where m.id = any (v_wanted);
        get diagnostics p_done = row_count;
    end if;
    select count(*) into p_asked from pgqueue_message_request_cancel(v_running);

    p_skipped := cardinality(v_found) - coalesce(cardinality(p_locked), 0) - p_done - p_asked - p_awaiting;
    p_locked := coalesce(p_locked, '{}') || case when cardinality(v_held) < cardinality(p_ids) then array(
        select m.id from pgqueue_message m where m.id = any (p_ids) and m.id <> all (v_held) order by m.id) else '{}' end;
end
$$\;
create or replace function pgqueue_edit_step(p_limit integer default 1000, p_version text default null) returns bigint
language plpgsql
set search_path from current
as $$
-- Does a part of the oldest edit that no other session works on, and returns its id; null: there is none.  Workers call
-- it in a transaction of its own until it returns null.  The position is written in the transaction that does the part,
-- so a worker may die at any time: another one goes on, and nothing is done twice.
-- Looks at p_limit ids at most.  p_version: that of the deploy, for messages that are enqueued again.
-- An error that will come again, such as a channel that is full, ends the edit, and the row has it; one of locks or of time does not.
-- Locks the row of the edit, then rows of pgqueue_message in the order of ids; waits for no row.
declare
    v_edit pgqueue_edit;
    v_ids bigint[];
    v_last bigint;
    v_part record;
    v_is_end boolean;
begin
    if p_limit is null or p_limit < 1 or octet_length(p_version) > 100 then  -- it would end the edit of somebody else
        raise exception 'p_limit is %, and p_version has % bytes', p_limit, coalesce(octet_length(p_version), 0)
            using errcode = 'invalid_parameter_value', hint = 'Pass 1 or more, and a version of up to 100 bytes.';
    end if;
    select e.* into v_edit from pgqueue_edit e
    where e.finished_at is null and e.stopped_at is null
    order by e.id limit 1
    for update skip locked;
    if not found then
        return null;
    end if;
    begin
        v_is_end := v_edit.position >= v_edit.last_id;
        if v_edit.action = 'enqueue_again' then
            select s.p_ids, s.p_last into v_ids, v_last
            from pgqueue_edit_attempts(v_edit.filter, v_edit.position, v_edit.last_id, p_limit) as s;
            select count(n) as p_done, 0::bigint as p_asked, 0::bigint as p_awaiting, 0::bigint as p_skipped,
                   '{}'::bigint[] as p_locked
            into v_part
            from pgqueue_attempt_enqueue(v_ids, p_version) as n;
            if v_part.p_done < cardinality(v_ids) then  -- and none of this part is enqueued
                raise exception 'the channel of % messages is full, or was released', cardinality(v_ids) - v_part.p_done;
            end if;
        else
            if v_is_end then
                v_ids := v_edit.locked_ids;
                v_last := v_edit.last_id;
            else
                select s.p_ids, s.p_last into v_ids, v_last
                from pgqueue_edit_messages(v_edit.filter, v_edit.position, v_edit.last_id, p_limit) as s;
            end if;
            -- A moment ago they had this argument and this error: to look at it again would take long, with all of them
            -- locked.  Since somebody else held them, they may have another one.
            select * into v_part from pgqueue_edit_change(
                v_edit.action, v_edit.parameters, v_ids,
                case when v_is_end then v_edit.filter else v_edit.filter - array['argument', 'error_group'] end);
        end if;
        -- At the end, or where there are too many, they are not tried once more.
        if v_is_end or cardinality(v_edit.locked_ids) > 10000 then
            v_part.p_skipped := v_part.p_skipped + cardinality(v_part.p_locked);
            v_part.p_locked := '{}';
        end if;
        v_edit.locked_ids := case when v_is_end then '{}' else v_edit.locked_ids || v_part.p_locked end;
        update pgqueue_edit e
        set position = greatest(v_last, e.position), done = e.done + v_part.p_done, asked = e.asked + v_part.p_asked,
            awaiting = e.awaiting + v_part.p_awaiting, skipped = e.skipped + v_part.p_skipped,
            locked_ids = v_edit.locked_ids, started_at = coalesce(e.started_at, pgqueue_clock()),
            finished_at = case when v_last >= e.last_id and v_edit.locked_ids = '{}' then pgqueue_clock() end
        where e.id = v_edit.id;
    exception
        when lock_not_available or deadlock_detected or serialization_failure or operator_intervention
            or insufficient_resources or system_error or internal_error then
            raise;
        when others then
            update pgqueue_edit e
            set error = left(sqlerrm, 500), started_at = coalesce(e.started_at, pgqueue_clock()), finished_at = pgqueue_clock()
            where e.id = v_edit.id;
    end;
    return v_edit.id;
end
$$\;
alter table pgqueue_worker add column ordered text, add column ordered_slots integer, add column ordered_at timestamptz,
    add column ordered_by text,
    add constraint pgqueue_worker_order_known check (ordered in ('pause', 'stop') and ordered_slots between 1 and 1000
        and octet_length(ordered_by) <= 1020
        and ordered_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')\;
alter table pgqueue_report_hour alter column id set generated by default\;
alter table pgqueue_report_queue alter column id set generated by default\;
alter table pgqueue_report_error alter column id set generated by default\;
do $$
declare
    v_day regclass;
begin
    for v_day in select t.relid from pg_partition_tree('pgqueue_attempt') as t loop
        execute format('alter table %s replica identity full', v_day);
    end loop;
end
$$\;
-- Figures of the ended attempts, by queue and task: of each five minutes (UTC) for the last hours, and of each hour for
-- the last weeks.  pgqueue_rollup_add adds the attempts that have ended since its last call, and pgqueue_rollup_prune
-- deletes what is old.  task is null for raw messages.
-- Counts, waits and runs have the meaning and the histograms those of pgqueue_report_hour: {"bucket": count}, where a
-- bucket is ceil(ln(milliseconds) / ln(1.05)), so they can be added up over times, queues and tasks.
create table pgqueue_rollup (
    id               bigint generated by default as identity primary key,
    starts_at        timestamptz not null,
    minutes          smallint not null,
    queue            text not null,
    task             text,
    succeeded        bigint not null,
    deferred         bigint not null,
    retried          bigint not null,
    failed           bigint not null,
    cancelled        bigint not null,
    lost             bigint not null,
    messages         bigint not null,
    message_attempts bigint not null,
    wait_ms          double precision not null,
    run_ms           double precision not null,
    wait_histogram   jsonb not null,
    run_histogram    jsonb not null,
    constraint pgqueue_rollup_minutes_known check (minutes in (5, 60)),
    constraint pgqueue_rollup_times_of_calendar check (
        starts_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00'),
    constraint pgqueue_rollup_names_short check (octet_length(queue) <= 255 and octet_length(task) <= 255),
    -- One row of another form would break every sum that it is part of.
    constraint pgqueue_rollup_histograms_are_objects_of_counts check (
        jsonb_typeof(wait_histogram) = 'object' and jsonb_typeof(run_histogram) = 'object'
        and not jsonb_path_exists(jsonb_build_array(wait_histogram, run_histogram),
            '$[*].keyvalue() ? (@.value.type() != "number" || @.value < 0 || @.value >= 1000000000000000
                                || @.value.floor() != @.value || !(@.key like_regex "^-?[0-9]{1,4}$"))'))
) with (fillfactor = 70)\;

create unique index pgqueue_rollup_key on pgqueue_rollup (minutes, starts_at, queue, coalesce(task, ''))\;

-- How far the history has been added up: one row.  All transactions below transaction_id are in the figures, but those
-- in open_ids, which ran for long and still ran at the last call.  newest_id is the first transaction that had not begun
-- then; attempt_id is an attempt close to the end of what was added, and gives the next call its size.
create table pgqueue_rollup_position (
    is_only        boolean primary key default true,
    transaction_id bigint not null default 0,
    newest_id      bigint not null default 0,
    attempt_id     bigint not null default 0,
    open_ids       bigint[] not null default '{}',
    looked_at      timestamptz,
    constraint pgqueue_rollup_position_is_only check (is_only),
    constraint pgqueue_rollup_position_times_of_calendar check (
        looked_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
)\;
create or replace function pgqueue_histogram_sum(p_one jsonb, p_other jsonb) returns jsonb
language sql immutable parallel safe
as $$
    -- Returns the sum of two histograms {"bucket": count}.
    select coalesce(jsonb_object_agg(s.bucket, s.times), '{}')
    from (
        select e.key as bucket, sum(e.value::bigint) as times
        from (select * from jsonb_each_text(p_one) union all select * from jsonb_each_text(p_other)) as e
        group by e.key
    ) as s
$$\;
create or replace function pgqueue_rollup_add(p_every_seconds integer default 0, p_most integer default 20000)
returns boolean
language plpgsql
set search_path from current
set timezone = 'UTC'
set enable_seqscan = off
set plan_cache_mode = 'force_custom_plan'
set jit = off
as $$
-- Adds attempts that have ended since the last call to pgqueue_rollup.  Returns true while there are more: call it again.
-- Any number of workers may call it at any time: one works, the others return false.  So does everybody when the last
-- call was less than p_every_seconds ago and nothing was left.
-- Each attempt is counted once, whenever its transaction commits: the position is a number of transactions, not a time.
-- Transactions that run already at the last call are noted in the position, and are counted when they are over, so
-- that no long transaction holds the figures up.  A younger one ends this call, and is counted in the next.
-- One call counts about p_most attempts, and never less than one transaction.  Attempts that ended before yesterday (UTC)
-- are not counted: the first call on an old history begins there.
-- Reads the history by its block ranges.  Writes pgqueue_rollup and pgqueue_rollup_position.
declare
    v_snapshot pg_snapshot := pg_current_snapshot();
    v_newest bigint := pg_snapshot_xmax(v_snapshot)::text::bigint;
    v_running bigint[] := array(select x::text::bigint from pg_snapshot_xip(v_snapshot) as x);
    v_since timestamptz := date_trunc('day', pgqueue_clock()) - interval '1 day';
    v_end timestamptz := date_trunc('day', pgqueue_clock()) + interval '2 days';
    v_position pgqueue_rollup_position;
    v_until bigint;
    v_still bigint[];
    v_over bigint[];
    v_last bigint;
    v_step bigint;
begin
    if p_most not between 1 and 1000000 or p_every_seconds not between 0 and 86400 then
        raise exception 'p_most is %, and p_every_seconds is %', p_most, p_every_seconds
            using errcode = 'invalid_parameter_value', hint = 'p_most is 1 to 1000000, and p_every_seconds is 0 to 86400.';
    end if;
    if exists (
        select from pgqueue_rollup_position p
        where p_every_seconds > 0
          and p.looked_at between pgqueue_clock() - p_every_seconds * interval '1 second' and pgqueue_clock()
    ) then
        return false;
    end if;
    select * into v_position from pgqueue_rollup_position for update skip locked;
    if not found then
        insert into pgqueue_rollup_position default values on conflict do nothing;
        return found;
    end if;
    if v_position.newest_id > v_newest then
        -- The tables were restored into another cluster, whose transactions have lower numbers.
        update pgqueue_rollup_position
        set transaction_id = v_newest, newest_id = v_newest, open_ids = '{}', looked_at = pgqueue_clock();
        return false;
    end if;
    v_until := least(v_newest, (select min(x) from unnest(v_running) as x where x >= v_position.newest_id));
    select a.id, a.transaction_id into v_last, v_step
    from pgqueue_attempt a
    where a.id > v_position.attempt_id and a.finished_at >= v_since and a.finished_at < v_end
    order by a.id offset p_most limit 1;
    if v_step is not null then
        v_until := greatest(v_position.transaction_id, least(v_until, v_step + 1));
    else
        select a.id into v_last
        from pgqueue_attempt a
        where a.id > v_position.attempt_id and a.finished_at >= v_since and a.finished_at < v_end
        order by a.id desc limit 1;
        v_until := greatest(v_position.transaction_id, v_until);
    end if;
    v_still := array(select x from unnest(v_running) as x where x < v_until order by x);
    v_over := array(select x from unnest(v_position.open_ids) as x where x <> all (v_running));
    with ended as materialized (
        select date_bin('5 minutes', a.finished_at, '2000-01-01 00:00:00+00') as starts_at, a.queue,
               nullif(a.task, '') as task,  -- the key of pgqueue_rollup knows no task without a name
               a.status, a.final, a.attempt,
               case when a.started_at is not null then greatest(0, least(
                   extract(epoch from a.started_at - a.created_at)::double precision * 1000,
                   extract(epoch from a.started_at)::double precision * 1000 - a.dequeue_at)) end as wait_ms,
               -- The end of a lost attempt is only when the loss was noticed.
               case when a.started_at is not null and a.status <> 'lost' then greatest(0,
                   extract(epoch from a.finished_at - a.started_at)::double precision * 1000) end as run_ms
        from (
            select n.* from pgqueue_attempt n
            where n.transaction_id >= v_position.transaction_id and n.transaction_id < v_until
              and n.finished_at >= v_since and n.finished_at < v_end and n.transaction_id <> all (v_still)
            union all
            select l.* from unnest(v_over) as o (transaction_id) cross join lateral (
                select n.* from pgqueue_attempt n
                where n.transaction_id = o.transaction_id and n.finished_at >= v_since and n.finished_at < v_end
            ) as l
        ) as a
    ),
    counted as materialized (
        select e.starts_at, e.queue, e.task,
               count(*) filter (where e.status = 'succeeded') as succeeded,
               count(*) filter (where e.status in ('deferred', 'suspended')) as deferred,
               count(*) filter (where e.status = 'retried') as retried,
               count(*) filter (where e.status = 'failed') as failed,
               count(*) filter (where e.status = 'cancelled') as cancelled,
               count(*) filter (where e.status = 'lost') as lost,
               count(*) filter (where e.final) as messages,
               coalesce(sum(e.attempt) filter (where e.final), 0) as message_attempts,
               coalesce(sum(e.wait_ms), 0) as wait_ms,
               coalesce(sum(e.run_ms), 0) as run_ms
        from ended e
        group by e.starts_at, e.queue, e.task
    ),
    bucket as materialized (
        select e.starts_at, e.queue, e.task, k.is_wait,
               ceil(ln(greatest(k.ms, 0.001)) / ln(1.05::double precision))::integer as bucket, count(*) as times
        from ended e cross join lateral (values (true, e.wait_ms), (false, e.run_ms)) as k (is_wait, ms)
        where k.ms is not null
        group by e.starts_at, e.queue, e.task, k.is_wait, 5
    ),
    size as (
        select * from (values (5::smallint, interval '5 minutes'), (60::smallint, interval '1 hour')) as s (minutes, width)
    ),
    total as (
        select s.minutes, date_bin(s.width, c.starts_at, '2000-01-01 00:00:00+00') as starts_at, c.queue, c.task,
               sum(c.succeeded) as succeeded, sum(c.deferred) as deferred, sum(c.retried) as retried,
               sum(c.failed) as failed, sum(c.cancelled) as cancelled, sum(c.lost) as lost, sum(c.messages) as messages,
               sum(c.message_attempts) as message_attempts, sum(c.wait_ms) as wait_ms, sum(c.run_ms) as run_ms
        from counted c cross join size s
        group by 1, 2, 3, 4
    ),
    histogram as (
        select t.minutes, t.starts_at, t.queue, coalesce(t.task, '') as task,
               jsonb_object_agg(t.bucket, t.times) filter (where t.is_wait) as waits,
               jsonb_object_agg(t.bucket, t.times) filter (where not t.is_wait) as runs
        from (
            select s.minutes, date_bin(s.width, b.starts_at, '2000-01-01 00:00:00+00') as starts_at, b.queue, b.task,
                   b.is_wait, b.bucket, sum(b.times) as times
            from bucket b cross join size s
            group by 1, 2, 3, 4, 5, 6
        ) as t
        group by 1, 2, 3, 4
    )
    insert into pgqueue_rollup as r (
        minutes, starts_at, queue, task, succeeded, deferred, retried, failed, cancelled, lost, messages,
        message_attempts, wait_ms, run_ms, wait_histogram, run_histogram)
    select t.*, coalesce(h.waits, '{}'), coalesce(h.runs, '{}')
    from total t
    left join histogram h
        on h.minutes = t.minutes and h.starts_at = t.starts_at and h.queue = t.queue and h.task = coalesce(t.task, '')
    on conflict (minutes, starts_at, queue, coalesce(task, '')) do update
    set succeeded = r.succeeded + excluded.succeeded, deferred = r.deferred + excluded.deferred,
        retried = r.retried + excluded.retried, failed = r.failed + excluded.failed,
        cancelled = r.cancelled + excluded.cancelled, lost = r.lost + excluded.lost,
        messages = r.messages + excluded.messages,
        message_attempts = r.message_attempts + excluded.message_attempts,
        wait_ms = r.wait_ms + excluded.wait_ms, run_ms = r.run_ms + excluded.run_ms,
        wait_histogram = pgqueue_histogram_sum(r.wait_histogram, excluded.wait_histogram),
        run_histogram = pgqueue_histogram_sum(r.run_histogram, excluded.run_histogram);
    update pgqueue_rollup_position
    set transaction_id = v_until, newest_id = v_newest, open_ids = v_still,
        attempt_id = coalesce(v_last, v_position.attempt_id),
        looked_at = case when v_step is null then pgqueue_clock() end;
    return v_step is not null;
end
$$\;
create or replace function pgqueue_rollup_prune(p_days integer default 31) returns integer
language sql
set search_path from current
as $$
    -- Deletes the figures that are older than p_days, and those of five minutes that are older than six hours.  Returns
    -- how many; at most 5000 a call.  Any number of workers may call it.
    with old as (
        select r.id from pgqueue_rollup r
        where (r.minutes = 60 and r.starts_at < pgqueue_clock() - make_interval(days => p_days))
           or (r.minutes = 5 and r.starts_at < pgqueue_clock() - interval '6 hours')
        limit 5000
        for update skip locked
    ),
    gone as (
        delete from pgqueue_rollup r using old where r.id = old.id returning 1
    )
    select count(*)::integer from gone
$$\;
create or replace function pgqueue_attempt_fingerprint(p_day date) returns text
language sql stable
set search_path from current
set timezone = 'UTC'
as $$
    -- Returns a fingerprint of the attempts of one day (UTC), "rows:sum of ids:checksum": copies with equal
    -- fingerprints are the same.  The checksum adds up 32 bits of the md5 of each row, with all of its columns, in any
    -- order.  Times are in microseconds since 1970, and a null is \N.
    select concat_ws(':', count(*), coalesce(sum(a.id), 0),
        coalesce(sum(('x' || left(md5(convert_to(array_to_string(array[
            a.id::text, a.message_id::text, a.dequeue_at::text, a.transaction_id::text,
            (extract(epoch from a.created_at) * 1000000)::bigint::text,
            (extract(epoch from a.started_at) * 1000000)::bigint::text,
            (extract(epoch from a.finished_at) * 1000000)::bigint::text, a.attempt::text, a.max_attempts::text,
            a.priority::text, a.final::text, a.status, a.queue, a.channel, a.task, a.unique_key, a.worker,
            a.error_class, a.error_message, a.traceback, a.result::text, a.content::text, a.headers::text
        ], '/', E'\\N'), 'UTF8')), 8))::bit(32)::bigint), 0))
    from pgqueue_attempt a
    where a.finished_at >= p_day and a.finished_at < p_day + 1
$$\;
create or replace function pgqueue_message_cancel(p_ids bigint[]) returns setof bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Withdraws waiting messages: they leave the queue and are appended to the history as cancelled.  Returns the ids of
-- the withdrawn messages, whose children are withdrawn too, unless they have begun.  The id of one that runs, or has
-- ended, is missing in the result, and nothing happened to it.
-- Locks rows of pgqueue_message in the order of ids; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
    v_now bigint := pgqueue_now();
    v_ids bigint[] := '{}';
begin
    for v_message in
        delete from pgqueue_message m
        where m.id = any (p_ids) and coalesce(m.unlock_at, v_now) <= v_now
        returning m.*
    loop
        perform pgqueue_attempt_append(v_message, 'cancelled', true);
        v_ids := v_ids || v_message.id;
        return next v_message.id;
    end loop;
    perform pgqueue_child_cancel(v_ids);
end
$$\;

create or replace function pgqueue_message_cancel(
    p_id bigint,
    p_attempt integer,
    p_worker text default null,
    p_error text default null,
    p_started_at timestamptz default null,
    p_finished_at timestamptz default null
) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Ends an attempt that the caller holds as cancelled, because it was asked to stop (pgqueue_message_request_cancel).
-- Returns true when done, false when the attempt is not the caller's any more and nothing happened.
declare
    v_message pgqueue_message;
begin
    delete from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    returning m.* into v_message;
    if not found then
        return false;
    end if;
    perform pgqueue_attempt_append(v_message, 'cancelled', true, pgqueue_attempt_error(p_error), p_started_at, p_finished_at);
    perform pgqueue_child_cancel(array[p_id]);
    return true;
end
$$\;

create or replace function pgqueue_message_cancel(p_id bigint) returns boolean
language sql
set search_path from current
as $$
    -- Withdraws one waiting message.  Returns true when done, false when the message runs or has ended.
    select exists (select from pgqueue_message_cancel(array[p_id]))
$$\;
create or replace function pgqueue_child_cancel(p_parent_ids bigint[]) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
-- Cancels the children of cancelled messages that have not begun (pgqueue_child.cancels), and returns how many.
-- The functions that cancel messages call this.
-- Locks rows of pgqueue_message without waiting for any; writes pgqueue_message and pgqueue_attempt.
declare
    v_message pgqueue_message;
    v_count integer := 0;
begin
    for v_message in
        delete from pgqueue_message m
        where m.id = any (array(
            select w.id
            from pgqueue_child c
            cross join lateral (
                select d.id from pgqueue_message d
                where d.id = c.message_id and d.attempt = 0 and d.unlock_at is null
                for update skip locked
            ) as w
            where c.parent_id = any (p_parent_ids) and c.cancels))
        returning m.*
    loop
        perform pgqueue_attempt_append(v_message, 'cancelled', true, jsonb_build_object(
            'class', 'django_pgqueue.exceptions.TaskCancelled', 'message', 'the job that waited for it was cancelled'));
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$\;
create or replace function pgqueue_event_arrive(p_names text[], p_limit integer default 100) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
-- Makes the messages ready that wait for these events, where they have been emitted.  Returns how many.
-- Up to p_limit of them for each event.  Where more are left, or others have locked them, pgqueue_ended gets the name
-- again.  pgqueue_message_settle calls this; consumers do not.
-- Locks rows of pgqueue_message without waiting for any; writes pgqueue_message and pgqueue_ended; wakes workers.
declare
    v_now bigint := pgqueue_now();
    v_woken integer := 0;
    v_queue record;
begin
    for v_queue in
        with ready as (
            update pgqueue_message m
            set dequeue_at = v_now, in_line = true, awaited_event = null
            where m.id = any (array(
                select w.id
                from unnest(p_names) as n (name)
                join pgqueue_event e on e.name = n.name
                cross join lateral (
                    select s.id from pgqueue_message s
                    where s.awaited_event = e.name and s.suspended_attempt is not null
                      and s.suspended_attempt = s.attempt and s.unlock_at is null and s.parked_at is null
                    limit p_limit
                    for update skip locked
                ) as w))
            returning m.queue
        )
        select r.queue, count(*)::integer as messages from ready r group by r.queue
    loop
        perform pgqueue_worker_wake(v_queue.queue, true);
        v_woken := v_woken + v_queue.messages;
    end loop;
    insert into pgqueue_ended (message_id, event, look_at)
    select 0, e.name, v_now + case when v_woken = 0 then 100 else 0 end
    from unnest(p_names) as n (name)
    join pgqueue_event e on e.name = n.name
    where (select true from pgqueue_message s
           where s.awaited_event = e.name and s.suspended_attempt is not null
             and s.suspended_attempt = s.attempt and s.unlock_at is null and s.parked_at is null
           limit 1);
    return v_woken;
end
$$\;
create or replace function pgqueue_child_keep(p_day date) returns integer
language plpgsql
set search_path from current
set timezone = 'UTC'
set enable_seqscan = off
set plan_cache_mode = 'force_custom_plan'
set jit = off
as $$
-- Prepares the drop of one day (UTC) of the history.  Returns how many rows of pgqueue_child and pgqueue_message it has
-- changed, at most 10,000 of each: call it until it returns 0, and drop the day then.
-- It copies the ends of children whose parents have not read them yet.
-- Nobody would know of a failure any more: a message that waits until others have succeeded (pgqueue_message_create_after)
-- is cancelled now where one of these others did not, on this day, though the rest of them have not ended.
-- A plan for known times, not for those of any day, opens and locks the partition of this day alone.  A lock for each
-- day and each of its indexes may be more than the server has, and then no day could be dropped.
-- Reads the day, and all after_ids of waiting messages: call it before a lock that others wait for.
-- Locks rows of pgqueue_message in the order of ids, then those of pgqueue_child; writes pgqueue_attempt, too.
declare
    v_from constant timestamptz := p_day::timestamptz;
    v_to constant timestamptz := (p_day + 1)::timestamptz;
    v_kept integer;
    v_cancelled integer := 0;
    v_waiting record;
    v_message pgqueue_message;
begin
    for v_waiting in
        select w.id, min(i.id) as failed_id
        from (
            select m.id, m.after_ids, m.after_policy from pgqueue_message m where m.awaited_id is not null
            union all
            select m.id, m.after_ids, m.after_policy from pgqueue_message m where m.check_at is not null and m.awaited_id is null
        ) as w
        cross join unnest(w.after_ids) as i (id)
        where w.after_policy = 'succeeded'
          and i.id in (
            select a.message_id from pgqueue_attempt a
            where a.final and a.status <> 'succeeded' and a.finished_at >= v_from and a.finished_at < v_to)
        group by w.id
        order by w.id
        limit 10000
    loop
        delete from pgqueue_message m
        where m.id = v_waiting.id and m.after_policy = 'succeeded'
        returning m.* into v_message;
        continue when not found;
        v_cancelled := v_cancelled + 1;
        v_message.dequeue_at := pgqueue_now();
        perform pgqueue_attempt_append(v_message, 'cancelled', true, jsonb_build_object(
            'class', 'django_pgqueue.exceptions.DependencyFailed',
            'message', format('message %s had to succeed first, but did not', v_waiting.failed_id)));
    end loop;
    update pgqueue_child c
    set status = e.status, error_class = e.error_class, error_message = e.error_message, result = e.result
    from (
        select k.message_id, k.parent_id, a.status, a.error_class, a.error_message, a.result
        from pgqueue_child k
        join pgqueue_attempt a on a.message_id = k.message_id
        where k.status is null and a.final and a.finished_at >= v_from and a.finished_at < v_to
        limit 10000
    ) as e
    where c.message_id = e.message_id and c.parent_id = e.parent_id;
    get diagnostics v_kept = row_count;
    return v_kept + v_cancelled;
end
$$\;
create or replace function pgqueue_name_require(p_name text, p_what text, p_max integer default 255) returns void
language plpgsql stable
as $$
-- Raises an error unless p_name can be the name of p_what: 1 to p_max bytes without control characters.  The functions of
-- durable tasks call this.  pgqueue_step_record, pgqueue_step_record_many and pgqueue_approval_decide have the same pattern
-- of control characters: a function that all call would be planned anew at each record of a step.
begin
    if p_name is null or p_name = '' or octet_length(p_name) > p_max then
        raise exception 'the name of % is %, of % bytes', p_what, quote_nullable(left(p_name, 50)), coalesce(octet_length(p_name), 0)
            using errcode = 'invalid_parameter_value', hint = format('It must have 1 to %s bytes.', p_max);
    elsif p_name ~ '[\u0001-\u001f\u007f]' then
        raise exception 'the name of % is %, with a control character', p_what, to_json(left(p_name, 50))
            using errcode = 'invalid_parameter_value', hint = 'Leave it out: names stand in lines of logs and of pages.';
    end if;
end
$$\;
create or replace function pgqueue_step_refuse(p_name text, p_kind text, p_status text, p_started_at timestamptz)
returns boolean
language plpgsql
set search_path from current
as $$
-- Raises the error that says why a step cannot be recorded.  pgqueue_step_record and pgqueue_step_record_many call this
-- where the table would refuse the record.
begin
    perform pgqueue_name_require(p_name, 'a step');
    if p_kind is null or p_kind not in ('step', 'atomic', 'enqueue', 'sleep', 'event', 'approval') then
        raise exception 'p_kind of the step % is %', p_name, quote_nullable(left(p_kind, 50))
            using errcode = 'invalid_parameter_value',
                  hint = 'It must be step, atomic, enqueue, sleep, event or approval.';
    elsif p_status is null or p_status not in ('began', 'failed', 'waiting', 'unasked', 'done') then
        raise exception 'p_status of the step % is %', p_name, quote_nullable(left(p_status, 50))
            using errcode = 'invalid_parameter_value', hint = 'It must be done, failed, began, waiting or unasked.';
    end if;
    raise exception 'p_started_at of the step % is %', p_name, p_started_at
        using errcode = 'invalid_parameter_value', hint = 'It must be a time of the years 1 to 9999, or null.';
end
$$\;
create or replace function pgqueue_step_record(
    p_id bigint,
    p_attempt integer,
    p_name text,
    p_result jsonb default null,
    p_worker text default null,
    p_kind text default 'step',
    p_status text default 'done',
    p_error text default null,
    p_started_at timestamptz default null
) returns boolean
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
    -- Records a step of a message that the caller holds.  Returns false when the attempt is not the caller's any more:
    -- then nothing was recorded, and the caller rolls back what the step has done.
    -- The row of the message is locked for key share until the end of the transaction: a heartbeat passes, and whatever
    -- ends the attempt does not.  So a step is recorded by the holder of its message, or not at all.
    -- recorded_at is no earlier than the message was created: who reads the records looks from that day on, and the clock
    -- may have been ahead then.  The time of the day keeps records of one name apart.
    -- Locks one row of pgqueue_message; writes pgqueue_step.
    with held as (
        select m.id, m.created_at from pgqueue_message m
        where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
        for key share
    ),
    recorded as (
        insert into pgqueue_step (
            message_id, recorded_at, started_at, finished_at, attempt, kind, status, name, error, result)
        select h.id,
               case when c.now < h.created_at then h.created_at + (c.now - date_trunc('day', c.now)) else c.now end,
               p_started_at, c.now, p_attempt, p_kind, p_status, p_name, left(p_error, 1000000),
               case when pgqueue_message_is_large(p_result) then pgqueue_message_readable(p_result, 'result') else p_result end
        from held h cross join pgqueue_clock() as c (now)
        returning message_id
    )
    select case
        when p_name <> '' and octet_length(p_name) <= 255 and p_name !~ '[\u0001-\u001f\u007f]'
             and p_kind in ('step', 'atomic', 'enqueue', 'sleep', 'event', 'approval')
             and p_status in ('began', 'failed', 'waiting', 'unasked', 'done')
             and (p_started_at is null or p_started_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
        then exists (select from recorded)
        else pgqueue_step_refuse(p_name, p_kind, p_status, p_started_at)
    end
$$\;
create or replace function pgqueue_step_record_many(
    p_ids bigint[],
    p_attempts integer[],
    p_workers text[],
    p_names text[],
    p_results jsonb[],
    p_kinds text[],
    p_statuses text[],
    p_started_at timestamptz[]
) returns setof integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Records steps of several messages in one transaction, as pgqueue_step_record records one.  Returns the places
-- (from 1) of those that were recorded.  The others may have lost their attempt, or somebody else has locked their
-- message: pgqueue_step_record says which, and waits.  This function waits for nobody, so that one message does not
-- hold up the others.  One that cannot be recorded at all is an error, and none is recorded.
-- Locks rows of pgqueue_message for key share; writes pgqueue_step.
declare
    v_timeout text := current_setting('lock_timeout');
    v_ids bigint[];
    v_attempts integer[];
    v_workers text[];
    v_created timestamptz[];
begin
    begin
        -- Though it skips what is locked, it waits for a transaction that goes on after it has prolonged and then ended one
        -- of the messages (pgqueue_message_look).  Then none is recorded.
        perform set_config('lock_timeout', '10ms', true);
        select array_agg(h.id), array_agg(h.attempt), array_agg(h.worker), array_agg(h.created_at)
        into v_ids, v_attempts, v_workers, v_created
        from (
            select m.id, m.attempt, m.worker, m.created_at from pgqueue_message m
            where m.id = any (p_ids)
            for key share skip locked
        ) h;
        perform set_config('lock_timeout', v_timeout, true);
    exception
        when lock_not_available then
            return;
    end;
    return query
    with asked as materialized (
        select a.*
        from unnest(p_ids, p_attempts, p_workers, p_names, p_results, p_kinds, p_statuses, p_started_at)
             with ordinality as a (id, attempt, worker, name, result, kind, status, started_at, place)
        where case
            when a.name <> '' and octet_length(a.name) <= 255 and a.name !~ '[\u0001-\u001f\u007f]'
                 and a.kind in ('step', 'atomic', 'enqueue', 'sleep', 'event', 'approval')
                 and a.status in ('began', 'failed', 'waiting', 'unasked', 'done')
                 and (a.started_at is null or a.started_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
            then true
            else pgqueue_step_refuse(a.name, a.kind, a.status, a.started_at)
        end
    ),
    recorded as (
        insert into pgqueue_step (
            message_id, recorded_at, started_at, finished_at, attempt, kind, status, name, result)
        select a.id,
               case when c.now < h.created_at then h.created_at + (c.now - date_trunc('day', c.now)) else c.now end,
               a.started_at, c.now, a.attempt, a.kind, a.status, a.name,
               case when pgqueue_message_is_large(a.result) then pgqueue_message_readable(a.result, 'result') else a.result end
        from asked a join unnest(v_ids, v_attempts, v_workers, v_created) as h (id, attempt, worker, created_at)
                 on h.id = a.id and h.attempt = a.attempt and h.worker = a.worker
             cross join pgqueue_clock() as c (now)
        returning message_id, name, status
    )
    select a.place::integer from asked a join recorded r on r.message_id = a.id and r.name = a.name and r.status = a.status;
end
$$\;
create or replace function pgqueue_step_load(p_id bigint, p_created_at timestamptz, p_max_bytes integer default 10000)
returns table (
    p_name text, p_kind text, p_status text, p_attempt integer, p_until bigint, p_is_large boolean, p_result jsonb)
language plpgsql stable
set search_path from current
set enable_seqscan = off
set plan_cache_mode = 'force_custom_plan'
set jit = off
as $$
-- Returns the records of the steps of one message, the latest last, whatever the clock has done between two attempts.
-- p_created_at is that of the message; null: reads the days of all messages.
-- is_large: the stored result has more than p_max_bytes, and is left out; pgqueue_step_result returns it.
-- A plan for a known time opens and locks the days since then alone: the server may have no room for each day.
declare
    v_since constant timestamptz := coalesce(p_created_at, '-infinity') - interval '1 day';
begin
    return query
    select s.name, s.kind, s.status, s.attempt, s.until, l.is_large, case when not l.is_large then s.result end
    from pgqueue_step s
    cross join lateral (select coalesce(pg_column_size(s.result), 0) > p_max_bytes as is_large) as l
    where s.message_id = p_id and s.recorded_at >= v_since
    order by s.attempt, s.finished_at;
end
$$\;
create or replace function pgqueue_step_result(p_id bigint, p_created_at timestamptz, p_name text) returns jsonb
language plpgsql stable
set search_path from current
set enable_seqscan = off
set plan_cache_mode = 'force_custom_plan'
set jit = off
as $$
-- Returns the recorded result of one step.
-- A plan for a known time opens and locks the days since then alone: the server may have no room for each day.
declare
    v_since constant timestamptz := coalesce(p_created_at, '-infinity') - interval '1 day';
begin
    return (
        select s.result
        from pgqueue_step s
        where s.message_id = p_id and s.recorded_at >= v_since and s.name = p_name and s.status = 'done'
        limit 1);
end
$$\;
create or replace function pgqueue_step_partition(p_day date) returns boolean
language plpgsql
set search_path from current
set timezone = 'UTC'
set datestyle = 'ISO'
as $$
-- Makes the partition pgqueue_step_YYYYMMDD for one day (UTC), and moves the rows of that day from pgqueue_step_default
-- into it.  Returns true when it was made, and false when it was there already.  A table of this name that was detached
-- is an error.
-- Who records a step at this moment waits until the end of the transaction.  It is short, because days that come have
-- no rows yet.  Dynamic SQL, because a table name cannot be a parameter.
declare
    v_name text := 'pgqueue_step_' || to_char(p_day, 'YYYYMMDD');
begin
    if p_day is null or p_day not between '0001-01-02' and '9999-12-30' then
        raise exception 'p_day is %', p_day
            using errcode = 'invalid_parameter_value', hint = 'It must be a day of the years 1 to 9999.';
    end if;
    if exists (
        select from pg_class c
        where c.relname = v_name
          and c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'pgqueue_step'::regclass)
    ) then
        if not exists (
            select from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'pgqueue_step'::regclass and c.relname = v_name
        ) then
            raise exception '% is there, and no partition of pgqueue_step', v_name
                using errcode = 'duplicate_table', hint = 'Somebody has detached it: rename it, or drop it.';
        end if;
        return false;
    end if;
    lock table only pgqueue_step in share row exclusive mode;
    lock table pgqueue_step_default in access exclusive mode;
    execute format('create table %I (like pgqueue_step including defaults including constraints)', v_name);
    execute format('alter table %I replica identity full', v_name);  -- people delete rows by hand
    execute format(
        'with moved as (delete from pgqueue_step_default where recorded_at >= %L and recorded_at < %L returning *)
         insert into %I select * from moved',
        p_day::timestamptz, (p_day + 1)::timestamptz, v_name);
    execute format(
        'alter table pgqueue_step attach partition %I for values from (%L) to (%L)',
        v_name, p_day::timestamptz, (p_day + 1)::timestamptz);
    return true;
end
$$\;
create or replace function pgqueue_step_maintain(
    p_days_ahead integer default 7,
    p_days_kept integer default null,
    p_lake_days integer default 7
) returns integer
language plpgsql
set search_path from current
set timezone = 'UTC'
set lock_timeout = '50ms'
set plan_cache_mode = 'force_custom_plan'
as $$
-- Maintains the tables of durable tasks.  Returns how many partitions of pgqueue_step it has made or dropped, and how
-- many rows it has moved or deleted: call it again as long as it does anything.
-- Makes, where there are any steps, the partitions from today to p_days_ahead days ahead, and of days whose rows are in
-- pgqueue_step_default.  Deletes events that are older than p_days_kept whole days (null: keeps all), decisions and
-- children of messages that had ended by then, and, however young, budgets of ended messages and what nobody can decide
-- any more, up to 10,000 of each.  It keeps the events for which a message has begun to wait and that it has not read
-- yet: its queue may have been paused ever since, or nobody knows its task.
-- If all that was nothing, it drops a partition that is as old: what the rest has locked would be locked meanwhile.  The
-- call before moves the steps of a message that is still in the queue, and those of one that has ended since, into the
-- day of its end.  A session that waits for the lock of the drop may have a snapshot from before it, in which the moved
-- steps must be: otherwise a task would not find them, and do them again.
-- Where pgqueue_lake has a lake, everything stays p_lake_days days longer: a lake gets the steps of a message with the
-- attempt that ends it.
-- A day that cannot be made or dropped, as an event trigger refuses, a right is missing, or a view needs it, keeps nothing
-- else from it.  The call that finds nothing else to do raises the error.
-- One worker does this at a time; the others return 0.
declare
    v_day date;
    v_today date := pgqueue_clock()::date;
    v_changed integer := 0;
    v_rows integer;
    v_partition regclass;
    v_last_id bigint;
    v_awaited text[] := '{}';
    v_since timestamptz;  -- what has ended since is kept
    v_until timestamptz;  -- the look at the history locks no later day: the server may have no room for each of them
    v_refusal text;
    v_detail text;
    v_sqlstate text;
begin
    if p_days_ahead not between 0 and 366 or p_days_kept < 0 or p_lake_days < 0 then
        raise exception 'p_days_ahead is %, p_days_kept is %, and p_lake_days is %', p_days_ahead, p_days_kept, p_lake_days
            using errcode = 'invalid_parameter_value', hint = 'They must be numbers of days: 0 to 366 ahead, and 0 or more kept.';
    end if;
    if exists (select from pgqueue_lake) then
        p_days_kept := p_days_kept + p_lake_days;
    end if;
    begin
        lock table only pgqueue_step in share update exclusive mode nowait;
    exception
        when lock_not_available then
            return 0;
    end;
    v_since := v_today - p_days_kept;
    v_until := v_since + interval '400 days';
    -- Before the locks of days that are made or dropped: nobody could record a step while this looks at the history.
    begin
        if p_days_kept is not null then
            if exists (select from pgqueue_event o where o.emitted_at < v_since) then
                -- A message that waits for a time only, or for others, reads none.
                v_awaited := array(
                    select m.awaited_event from pgqueue_message m
                    where m.suspended_attempt is not null and m.awaited_event is not null
                    union
                    select case s.kind when 'approval' then format('pgqueue:approval:%s:%s', s.message_id, s.name)
                                       else coalesce(s.result #>> '{}', s.name) end
                    from pgqueue_message m
                    join pgqueue_step s on s.message_id = m.id
                    where m.suspended_attempt is not null and (m.attempt <> m.suspended_attempt or m.in_line or m.parked_at is not null)
                      and s.status = 'waiting' and s.kind in ('event', 'approval')
                      and not exists (
                        select from pgqueue_step d where d.message_id = m.id and d.name = s.name and d.status = 'done'));
            end if;
            delete from pgqueue_event e
            where e.ctid = any (array(
                select o.ctid from pgqueue_event o
                where o.emitted_at < v_since and o.name <> all (v_awaited)
                limit 10000 for update skip locked));
            get diagnostics v_rows = row_count;
            v_changed := v_changed + v_rows;
            delete from pgqueue_approval a
            where a.ctid = any (array(
                select o.ctid from pgqueue_approval o
                where o.asked_at < v_since
                  and not exists (select from pgqueue_message m where m.id = o.message_id)
                  and (select true from pgqueue_attempt t
                       where t.message_id = o.message_id and t.final and t.finished_at >= v_since and t.finished_at < v_until
                       limit 1) is null
                limit 10000 for update skip locked));
            get diagnostics v_rows = row_count;
            v_changed := v_changed + v_rows;
            -- Not sooner: pgqueue_step_enqueue gives them to another parent.
            delete from pgqueue_child c
            where c.ctid = any (array(
                select o.ctid from pgqueue_child o
                where o.created_at < v_since
                  and not exists (select from pgqueue_message m where m.id = o.parent_id)
                  and (select true from pgqueue_attempt t
                       where t.message_id = o.parent_id and t.final and t.finished_at >= v_since and t.finished_at < v_until
                       limit 1) is null
                limit 10000 for update skip locked));
            get diagnostics v_rows = row_count;
            v_changed := v_changed + v_rows;
        end if;
        delete from pgqueue_approval a
        where a.ctid = any (array(
            select o.ctid from pgqueue_approval o
            where o.decided_at is null and not exists (select from pgqueue_message m where m.id = o.message_id)
            limit 10000 for update skip locked));
        get diagnostics v_rows = row_count;
        v_changed := v_changed + v_rows;
        delete from pgqueue_budget b
        where b.ctid = any (array(
            select o.ctid from pgqueue_budget o
            where not exists (select from pgqueue_message m where m.id = o.message_id) limit 10000 for update skip locked));
        get diagnostics v_rows = row_count;
        v_changed := v_changed + v_rows;
    exception
        when lock_not_available then  -- somebody makes or drops a day of the history: a later call deletes them
            v_changed := 0;
    end;
    begin
        for v_day in
            select v_today + n from generate_series(0, p_days_ahead) as n where exists (select from pgqueue_step)
            union
            (select distinct d.recorded_at::date from pgqueue_step_default d where isfinite(d.recorded_at) limit 30)
            order by 1
        loop
            begin
                v_changed := v_changed + pgqueue_step_partition(v_day)::integer;
            exception
                when lock_not_available then  -- somebody reads them: the next call makes them
                    exit;
                when others then
                    get stacked diagnostics
                        v_refusal = message_text, v_detail = pg_exception_detail, v_sqlstate = returned_sqlstate;
            end;
        end loop;
    exception
        when lock_not_available then  -- held by a session that reads the default partition
            null;
    end;
    if p_days_kept is not null and v_changed = 0 then  -- what was done holds locks that others wait for
        for v_partition in
            select c.oid::regclass  -- it may be in another schema
            from pg_inherits i
            join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'pgqueue_step'::regclass
              and c.relname ~ '^pgqueue_step_[0-9]{8}$'
              and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_days_kept
            order by c.relname
        loop
            begin
                execute format('select max(s.message_id) from %s s', v_partition) into v_last_id;
                -- Hardly any message that is as old has ended since: one look at each day finds them, and not one for
                -- each message and day.
                execute format(
                    'with kept as (
                        select d.message_id, coalesce(
                            (select greatest(pgqueue_clock(), m.created_at) from pgqueue_message m where m.id = d.message_id),
                            e.at) as at
                        from (select distinct r.message_id from %s r) as d
                        left join (
                            select a.message_id, min(a.finished_at) as at from pgqueue_attempt a
                            where a.message_id <= $3 and a.final and a.finished_at >= $1 and a.finished_at < $2
                            group by a.message_id
                        ) as e on e.message_id = d.message_id
                     ), moved as (
                        delete from %s s using kept k where s.message_id = k.message_id and k.at is not null
                        returning s.*, k.at
                     )
                     insert into pgqueue_step (
                        message_id, recorded_at, started_at, finished_at, until, attempt, kind, status, name, error, result)
                     select s.message_id, date_trunc(''day'', s.at) + (s.recorded_at - date_trunc(''day'', s.recorded_at)),
                            s.started_at, s.finished_at, s.until, s.attempt, s.kind, s.status, s.name, s.error, s.result
                     from moved s', v_partition, v_partition)
                    using v_since, v_until, v_last_id;
                get diagnostics v_changed = row_count;
                exit when v_changed > 0;
                execute format('drop table %s', v_partition);
                v_changed := v_changed + 1;
                exit;  -- one a call
            exception
                when lock_not_available then
                    exit;
                when others then
                    get stacked diagnostics
                        v_refusal = message_text, v_detail = pg_exception_detail, v_sqlstate = returned_sqlstate;
            end;
        end loop;
    end if;
    if v_refusal is not null and v_changed = 0 then
        raise exception using errcode = v_sqlstate, message = concat_ws(': ', v_refusal, nullif(v_detail, ''));
    end if;
    return v_changed;
end
$$\;
create or replace function pgqueue_message_suspend(
    p_id bigint,
    p_attempt integer,
    p_worker text default null,
    p_name text default null,
    p_kind text default 'sleep',
    p_until bigint default null,
    p_event text default null,
    p_after_ids bigint[] default null,
    p_permission text default null,
    p_details jsonb default null,
    p_started_at timestamptz default null,
    p_finished_at timestamptz default null
) returns text
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Ends an attempt of a message that the caller holds as suspended: the message waits, and holds no lock.  The attempt
-- uses none of max_attempts up.
--   p_name, p_kind  the step that waits: sleep, event or approval.  Its record keeps p_until for the next attempts; null:
--                   the message waits for others
--   p_until         when it is ready again, whatever happens (epoch ms; null: never)
--   p_event         it is ready as soon as this event has been emitted; without p_name, that is the name of the step, too.
--                   Where they differ, the record of the step keeps the event, so that retention keeps it until it is read.
--                   Not for an approval, whose event is that of the decision
--   p_after_ids     it is ready when these messages have left the queue, as with pgqueue_message_create_after; itself may
--                   not be one of them
--   p_permission, p_details  for an approval: who may decide, and what that person is shown
-- No emit is missed, in whichever order transactions commit: the emitter leaves a row in pgqueue_ended, and so does this
-- function.  Who takes such a row has a snapshot in which its writer has committed.  If that writer has emitted, all that
-- waited by then are seen; if it has begun to wait, an event that is not seen yet is committed later, and leaves a row of
-- its own.
-- A message that was asked to stop is cancelled instead.
-- Returns suspended or cancelled; null: the attempt is not the caller's any more, and nothing happened.
-- Locks one row; writes pgqueue_message, pgqueue_attempt, pgqueue_step, pgqueue_approval and pgqueue_ended.
declare
    v_max constant integer := 100000;
    v_message pgqueue_message;
    v_now bigint := pgqueue_now();
    v_clock timestamptz := pgqueue_clock();
    v_until bigint := coalesce(p_until, 9223372036854775807);
    v_ids bigint[];
    v_decision text;
begin
    if cardinality(p_after_ids) > v_max then
        raise exception 'p_after_ids has % ids', cardinality(p_after_ids)
            using errcode = 'program_limit_exceeded',
                  hint = format('It may have %s: wait for the first of them, and then for the rest.', v_max);
    end if;
    v_ids := array(select distinct a.id from unnest(p_after_ids) as a (id) where a.id is not null order by 1);
    if p_id = any (p_after_ids) then
        raise exception 'message % would wait for itself', p_id
            using errcode = 'invalid_parameter_value', hint = 'Leave its id out of p_after_ids.';
    end if;
    if p_kind is null or p_kind not in ('sleep', 'event', 'approval') then
        raise exception 'p_kind is %', quote_nullable(left(p_kind, 50))
            using errcode = 'invalid_parameter_value', hint = 'It must be sleep, event or approval.';
    end if;
    if p_kind = 'approval' then
        if p_name is null then
            raise exception 'message % would wait for an approval without a name, which nobody can decide', p_id
                using errcode = 'invalid_parameter_value', hint = 'Name it with p_name.';
        end if;
        v_decision := format('pgqueue:approval:%s:%s', p_id, p_name);
        p_event := coalesce(p_event, v_decision);
        if p_event <> v_decision then
            raise exception 'message % would wait for the event %, which no decision of % emits',
                p_id, quote_literal(left(p_event, 50)), quote_literal(left(p_name, 50))
                using errcode = 'invalid_parameter_value', hint = 'Leave p_event out.';
        elsif p_permission is not null then
            perform pgqueue_name_require(p_permission, 'a permission');
        end if;
        if pgqueue_message_is_large(p_details) then
            p_details := pgqueue_message_readable(p_details, 'p_details');
        end if;
    elsif p_event is not null then
        perform pgqueue_name_require(p_event, 'an event');
        if starts_with(p_event, 'pgqueue:') then
            raise exception 'message % would wait for the event %, which nobody can emit', p_id, quote_literal(left(p_event, 50))
                using errcode = 'invalid_parameter_value', hint = 'Names that begin with pgqueue: belong to the queue.';
        end if;
    end if;
    if p_until is null and p_event is null and v_ids = '{}' then
        raise exception 'message % would wait for nothing, and so for ever', p_id
            using errcode = 'invalid_parameter_value',
                  hint = 'Give p_until, p_event or p_after_ids; p_until => pgqueue_now() makes it ready at once.';
    end if;
    p_name := coalesce(p_name, p_event);
    if p_name is not null then
        perform pgqueue_name_require(p_name, 'a step');
    end if;
    select m.* into v_message
    from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    for update;
    if not found then
        return null;
    end if;
    if v_message.cancel_requested_at is not null then
        delete from pgqueue_message m where m.id = p_id;
        perform pgqueue_attempt_append(v_message, 'cancelled', true, null, p_started_at, p_finished_at);
        perform pgqueue_child_cancel(array[p_id]);
        return 'cancelled';
    end if;

    if p_name is not null then
        insert into pgqueue_step (
            message_id, recorded_at, started_at, finished_at, until, attempt, kind, status, name, result)
        select p_id,
               case when v_clock < v_message.created_at
                    then v_message.created_at + (v_clock - date_trunc('day', v_clock)) else v_clock end,
               v_clock, v_clock, p_until, p_attempt, p_kind, 'waiting', p_name,
               case when p_kind <> 'approval' and p_event <> p_name then to_jsonb(p_event) end
        where not exists (
            select from pgqueue_step s
            where s.message_id = p_id and s.recorded_at >= v_message.created_at - interval '1 day'
              and s.name = p_name and s.status = 'waiting' and s.kind = p_kind);
        if p_kind = 'approval' then
            insert into pgqueue_approval (message_id, name, asked_at, permission, details)
            values (p_id, p_name, v_clock, p_permission, p_details)
            on conflict do nothing;
        end if;
    end if;
    update pgqueue_message m
    set unlock_at = null, locked_at = null, worker = null, progress = null,
        dequeue_at = v_until, in_line = v_until <= v_now,
        alone_at = null, lost = 0, unknown_since = null,
        max_attempts = m.max_attempts + case when m.max_attempts < 2000000000 then 1 else 0 end,
        suspended_attempt = m.attempt, awaited_event = p_event,
        after_ids = case when v_ids <> '{}' then v_ids end,
        after_policy = case when v_ids <> '{}' then 'finished' end,
        checks = case when v_ids <> '{}' then 0 end,
        check_at = case when v_ids <> '{}' then v_now end,
        awaited_id = case when v_ids <> '{}' then v_ids[cardinality(v_ids)] end
    where m.id = p_id;
    if v_ids <> '{}' and (select true from pgqueue_message d where d.id = v_ids[cardinality(v_ids)]) is null then
        insert into pgqueue_ended (message_id, look_at) values (v_ids[cardinality(v_ids)], v_now);
    end if;
    if p_event is not null then
        insert into pgqueue_ended (message_id, event, look_at) values (0, p_event, v_now);
    end if;
    perform pgqueue_attempt_append(v_message, 'suspended', false, null, p_started_at, p_finished_at);
    return 'suspended';
end
$$\;
create or replace function pgqueue_event_put(p_name text, p_payload jsonb) returns text
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Emits an event, as pgqueue_event_emit does, under any name.  pgqueue_event_emit and pgqueue_approval_decide call this.
-- It locks no message, so that emitting never waits for a waiter.  It waits for another transaction that emits the same
-- name.  Writes pgqueue_event and pgqueue_ended; wakes a sleeping worker if a message is seen to wait.
declare
    v_same boolean;
    v_queue text;
begin
    perform pgqueue_name_require(p_name, 'an event', 512);
    if p_payload is null then
        raise exception 'the payload of the event % is null', left(p_name, 50)
            using errcode = 'null_value_not_allowed', hint = 'Give a JSON value, such as {}.';
    end if;
    for v_round in 1 .. 1000 loop
        insert into pgqueue_event (name, emitted_at, payload) values (p_name, pgqueue_clock(), p_payload)
        on conflict do nothing;
        exit when found;
        select e.payload = p_payload into v_same from pgqueue_event e where e.name = p_name;
        if found then
            return case when v_same then 'repeated' else 'different' end;
        end if;  -- else retention has deleted it meanwhile
        if v_round = 1000 then
            raise exception 'row-level security hides the event %', quote_literal(left(p_name, 100))
                using errcode = 'insufficient_privilege', hint = 'Let the role bypass row-level security of pgqueue_event.';
        end if;
    end loop;
    insert into pgqueue_ended (message_id, event, look_at) values (0, p_name, pgqueue_now());
    select m.queue into v_queue from pgqueue_message m
    where m.awaited_event = p_name and m.suspended_attempt is not null
    limit 1;
    if found then
        perform pgqueue_worker_wake(v_queue, true);
    end if;
    return 'emitted';
end
$$\;
create or replace function pgqueue_event_emit(p_name text, p_payload jsonb default '{}') returns text
language plpgsql
set search_path from current
as $$
-- Emits an event, in the transaction of the caller: durable tasks that wait for it, and those that ask for it later,
-- go on with its payload.  The first emit of a name counts.  Returns emitted; repeated, if it had been emitted with this
-- payload before; or different, if it had been emitted with another one, which stays.
-- p_payload must not be null, which is what a task gets that has waited for too long, and must be what Python reads:
-- integers of up to 4300 digits, up to 1000 levels of lists and objects.
begin
    perform pgqueue_name_require(p_name, 'an event');
    if starts_with(p_name, 'pgqueue:') then
        raise exception 'the name of the event % begins with pgqueue:', quote_literal(left(p_name, 50))
            using errcode = 'invalid_parameter_value', hint = 'These names belong to the queue. Choose another one.';
    end if;
    if p_payload is null or p_payload = 'null' then
        raise exception 'the payload of the event % is null', p_name
            using errcode = 'null_value_not_allowed',
                  hint = 'A task that has waited for too long gets null. Emit another value, such as {} or true.';
    end if;
    if pgqueue_message_is_large(p_payload) then
        p_payload := pgqueue_message_readable(p_payload, 'payload');
    end if;
    if jsonb_path_exists(p_payload, 'strict $.** ? (@.type() == "number" && (@ >= 1e4300 || @ <= -1e4300))') then
        raise exception 'the payload of the event % has a number of more than 4300 digits', p_name
            using errcode = 'invalid_parameter_value', hint = 'Python does not read it. Emit it as text.';
    elsif jsonb_path_exists(p_payload, 'strict $.**{1000}') then
        raise exception 'the payload of the event % is nested more than 1000 levels deep', p_name
            using errcode = 'invalid_parameter_value', hint = 'Python does not read it. Emit less.';
    end if;
    return pgqueue_event_put(p_name, p_payload);
end
$$\;
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
$$\;
create or replace function pgqueue_child_add(
    p_id bigint,
    p_attempt integer,
    p_child_id bigint,
    p_worker text default null,
    p_cancels boolean default true
) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Records, in the transaction that enqueues the message p_child_id, that it is a child of a message that the caller
-- holds.  p_cancels: it is cancelled with its parent, unless it has begun.
-- Returns false when the attempt is not the caller's any more: the caller rolls back.
-- Locks one row of pgqueue_message as pgqueue_step_record does; writes pgqueue_child.
begin
    if p_child_id is null or p_child_id = p_id then
        raise exception 'p_child_id of the message % is %', p_id, quote_nullable(p_child_id)
            using errcode = 'invalid_parameter_value', hint = 'It must be the id of another message, which was just enqueued.';
    elsif p_cancels is null then
        raise exception 'p_cancels of the child % is null', p_child_id
            using errcode = 'invalid_parameter_value', hint = 'Pass true or false, or leave it out.';
    end if;
    perform from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    for key share;
    if not found then
        return false;
    end if;
    insert into pgqueue_child (message_id, parent_id, created_at, cancels)
    values (p_child_id, p_id, pgqueue_clock(), p_cancels)
    on conflict do nothing;
    return true;
end
$$\;
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
$$\;
create or replace function pgqueue_budget_spend(
    p_id bigint,
    p_attempt integer,
    p_name text,
    p_amount numeric,
    p_limit numeric,
    p_worker text default null,
    out p_is_held boolean,
    out p_is_spent boolean,
    out p_spent numeric
)
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Spends p_amount of a budget that a message that the caller holds has for all of its attempts together.
--   p_is_held   false: the attempt is not the caller's any more, and nothing happened
--   p_is_spent  false: it would have been more than p_limit, and nothing happened
--   p_spent     what is spent in all
-- Locks one row of pgqueue_message as pgqueue_step_record does; writes pgqueue_budget.
begin
    if num_nulls(p_amount, p_limit) > 0 or p_amount < 0 or greatest(abs(p_amount), abs(p_limit)) >= 1e30
       or greatest(scale(p_amount), scale(p_limit)) > 30 then
        raise exception 'p_amount is %, and p_limit is %', left(p_amount::text, 50), left(p_limit::text, 50)
            using errcode = 'invalid_parameter_value',
                  hint = 'They must be numbers of up to 30 digits on each side of the point, and p_amount not below 0.';
    end if;
    perform pgqueue_name_require(p_name, 'a budget');
    perform from pgqueue_message m
    where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())
    for key share;
    p_is_held := found;
    if not p_is_held then
        return;
    end if;
    insert into pgqueue_budget as b (message_id, name, spent)
    select p_id, p_name, p_amount where p_amount <= p_limit
    on conflict (message_id, name) do update set spent = b.spent + p_amount where b.spent + p_amount <= p_limit
    returning b.spent into p_spent;
    p_is_spent := found;
    if not p_is_spent then
        select coalesce(max(b.spent), 0) into p_spent from pgqueue_budget b where b.message_id = p_id and b.name = p_name;
    end if;
end
$$\;
create or replace function pgqueue_step_enqueue(p_message_id bigint, p_step text, p_version text default null) returns bigint
language plpgsql
set search_path from current
set enable_seqscan = off
set jit = off
as $$
-- Enqueues an ended message of a durable task again, from one of its steps on, and returns the id of the new message.
-- The new message keeps the records of what was done before that step was first tried, and its children, so that it does
-- none of it again.  p_version is as in pgqueue_attempt_enqueue, which this function calls.  Its headers have the step as
-- "enqueued_from_step".  The records are those of attempt 1, so that its own first attempt is the second, which reads them.
-- Writes pgqueue_message, pgqueue_step and pgqueue_child.
declare
    v_attempt_id bigint;
    v_from timestamptz;
    v_attempt integer;
    v_place tid;  -- records of one moment: only a clock that stands still in a test makes them
    v_id bigint;
begin
    select a.id into v_attempt_id from pgqueue_attempt a
    where a.message_id = p_message_id and a.final and a.content is not null and a.task is not null
    order by a.id + 0 desc  -- by the index of messages: that of ids would be read from the newest of all on
    limit 1;
    if not found then
        raise exception 'message % has not ended, or the history does not have it any more', p_message_id
            using errcode = 'invalid_parameter_value', hint = 'Cancel it first, or enqueue the task anew.';
    end if;
    select s.attempt, s.finished_at, s.ctid into v_attempt, v_from, v_place from pgqueue_step s
    where s.message_id = p_message_id and s.name = p_step
    order by s.attempt, s.finished_at, s.ctid
    limit 1;
    if not found then
        raise exception 'message % has no step %', p_message_id, left(p_step, 100)
            using errcode = 'invalid_parameter_value', hint = 'Choose one that it has come to (pgqueue_step).';
    end if;
    select e.id into v_id from pgqueue_attempt_enqueue(array[v_attempt_id], p_version) as e (id);
    if v_id is null then
        raise exception 'the channel of message % is full, or was released', p_message_id
            using errcode = 'invalid_parameter_value', hint = 'Try again later, or set another limit (pgqueue_channel_set).';
    end if;
    update pgqueue_message m
    set attempt = 1, max_attempts = m.max_attempts + case when m.max_attempts < 2000000000 then 1 else 0 end,
        headers = m.headers || jsonb_build_object('enqueued_from_step', p_step)
    where m.id = v_id;
    -- A sleep that is over has no other record than that of its wait.
    insert into pgqueue_step (
        message_id, recorded_at, started_at, finished_at, until, attempt, kind, status, name, error, result)
    select v_id, pgqueue_clock(), s.started_at, s.finished_at, s.until, 1, s.kind, s.status, s.name, s.error, s.result
    from pgqueue_step s
    where s.message_id = p_message_id and (s.attempt, s.finished_at, s.ctid) < (v_attempt, v_from, v_place)
      and (s.status = 'done' or s.kind = 'sleep');
    insert into pgqueue_child (message_id, parent_id, created_at, cancels, status, error_class, error_message, result)
    select c.message_id, v_id, c.created_at, c.cancels, c.status, c.error_class, c.error_message, c.result
    from pgqueue_child c
    where c.parent_id = p_message_id and not c.by_after and c.created_at <= v_from;
    return v_id;
end
$$\;
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
$$\;
create or replace function pgqueue_lane_arm(p_limit integer default 10000, p_channel text default null) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
-- Moves the rows of pgqueue_arrival into pgqueue_lane and pgqueue_channel, and returns how many rows it has moved.
-- Takes up to 1000 rows from each of up to 1000 lanes, so that a flood into one delays no other.  With p_channel only
-- the lanes of this one.
-- pgqueue_message_dequeue calls this; clients need not.  Never waits: rows that another session has locked are left for
-- the next call.  Plans: as in pgqueue_lane_dequeue.
declare
    v_now bigint := pgqueue_now();
    v_channels text[];
    v_queues text[];
    v_raws boolean[];
    v_count integer;
    v_names text[];
    v_released text[];
    v_name text;
    v_lane record;
    v_lock_timeout text := current_setting('lock_timeout');
begin
    -- The lanes with arrivals: one probe for each (a loose index scan), however many rows they have.
    with recursive present as (
        (select a.channel, a.queue, a.raw from pgqueue_arrival a where a.channel >= coalesce(p_channel, '')
         order by a.channel, a.queue, a.raw limit 1)
        union all
        select n.channel, n.queue, n.raw
        from present p
        cross join lateral (
            select a.channel, a.queue, a.raw from pgqueue_arrival a
            where (a.channel, a.queue, a.raw) > (p.channel, p.queue, p.raw)
            order by a.channel, a.queue, a.raw limit 1
        ) as n
        where p.channel = coalesce(p_channel, p.channel)
    )
    select array_agg(s.channel), array_agg(s.queue), array_agg(s.raw)
    into v_channels, v_queues, v_raws
    from (
        select p.channel, p.queue, p.raw from present p where p.channel = coalesce(p_channel, p.channel) limit 1000
    ) as s;
    if v_channels is null then
        return 0;
    end if;

    if exists (
        select from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
        where (select true from pgqueue_lane l where l.channel = u.channel and l.queue = u.queue and l.raw = u.raw) is null
           or (select true from pgqueue_channel c where c.name = u.channel) is null
    ) then
        -- New lanes, and those whose channel was removed while they were made.  The holder of a channel's advisory lock
        -- makes its rows, and the others go on without them.  A session may insert a row without that lock
        -- (pgqueue_channel_set after a wait), so the wait for it is short.
        begin
            perform set_config('lock_timeout', '10ms', true);
            insert into pgqueue_channel (name)
            select n.name from (
                select distinct u.channel from unnest(v_channels) as u (channel)
                where (select true from pgqueue_channel c where c.name = u.channel) is null
            ) as n (name)
            where pgqueue_advisory_lock('channel ' || n.name)
            on conflict do nothing;
            insert into pgqueue_lane (channel, queue, raw)
            select u.channel, u.queue, u.raw from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
            where (select true from pgqueue_lane l where l.channel = u.channel and l.queue = u.queue and l.raw = u.raw) is null
              and (select true from pgqueue_channel c where c.name = u.channel)
              and pgqueue_advisory_lock('channel ' || u.channel)
            on conflict do nothing;
            perform set_config('lock_timeout', v_lock_timeout, true);
        exception
            when lock_not_available then  -- the setting is rolled back
                null;
        end;
        -- The holder of that lock may be a login without rights to the queue: then no session makes those rows,
        -- and this one need not wait; else the wait is short.  In random order, so that no lane blocks the others.
        for v_lane in
            select u.channel, u.queue, u.raw from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
            where (select true from pgqueue_lane l where l.channel = u.channel and l.queue = u.queue and l.raw = u.raw) is null
               or (select true from pgqueue_channel c where c.name = u.channel) is null
            order by random()
            limit 10
        loop
            begin
                perform set_config('lock_timeout', '10ms', true);
                insert into pgqueue_channel (name) values (v_lane.channel) on conflict do nothing;
                insert into pgqueue_lane (channel, queue, raw) values (v_lane.channel, v_lane.queue, v_lane.raw)
                on conflict do nothing;
                perform set_config('lock_timeout', v_lock_timeout, true);
            exception
                when lock_not_available then  -- the setting is rolled back
                    exit;
            end;
        end loop;
    end if;

    -- The session that holds the rows of a channel and a lane may write them and take their arrivals.
    select array_agg(s.channel), array_agg(s.queue), array_agg(s.raw),
           array_agg(s.channel) filter (where s.released_at is not null)
    into v_channels, v_queues, v_raws, v_released
    from (
        select u.channel, u.queue, u.raw, c.released_at
        from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
        cross join lateral (
            select from pgqueue_lane d where d.channel = u.channel and d.queue = u.queue and d.raw = u.raw
            for no key update skip locked
        ) as l
        cross join lateral (
            select d.released_at from pgqueue_channel d where d.name = u.channel for no key update skip locked
        ) as c
    ) as s;
    if v_channels is null then
        return 0;
    end if;

    with gone as (
        delete from pgqueue_arrival d
        where d.ctid = any (array(
            select n.ctid
            from unnest(v_channels, v_queues, v_raws) as u (channel, queue, raw)
            cross join lateral (
                select a.ctid from pgqueue_arrival a
                where a.channel = u.channel and a.queue = u.queue and a.raw = u.raw
                order by a.channel, a.queue, a.raw, a.id
                limit 1000
            ) as n
            limit p_limit
        ))
        returning d.channel, d.queue, d.raw, d.dequeue_at, d.ended
    ), sums as (
        select g.channel, g.queue, g.raw, min(g.dequeue_at) as dequeue_at, count(*)::integer as rows,
               sum(sum(g.ended)) over (partition by g.channel)::integer as ended,  -- in all lanes of the channel
               row_number() over (partition by g.channel) as number
        from gone g group by g.channel, g.queue, g.raw
    ), counted as (
        update pgqueue_channel c set running = greatest(-1000000000, least(c.running - s.ended, 1000000000))
        from sums s where s.channel = c.name and c.name = any (v_channels) and s.number = 1 and s.ended <> 0
    ), armed as (
        update pgqueue_lane l
        set parked = false,
            next_at = case when l.parked then v_now else least(l.next_at, greatest(s.dequeue_at, v_now)) end
        from sums s
        join pgqueue_channel c on c.name = s.channel
        where l.channel = s.channel and l.queue = s.queue and l.raw = s.raw
          and l.channel = any (v_channels) and c.name = any (v_channels)
          and (l.parked and (c.running - s.ended < c.max_concurrency) is not false
               or not l.parked and s.dequeue_at is not null
                  and greatest(s.dequeue_at, v_now) < coalesce(l.next_at, 9223372036854775807))
    )
    select coalesce(sum(s.rows), 0), array(select n.channel from sums n where n.number = 1) into v_count, v_names from sums s;

    -- Other lanes of these channels may wait for the same end, and released channels for their last one.
    insert into pgqueue_arrival (channel, queue, raw, dequeue_at)
    select l.channel, l.queue, l.raw, v_now
    from pgqueue_lane l
    where l.channel = any (v_names) and l.parked
      and (select (c.running < c.max_concurrency) is not false from pgqueue_channel c where c.name = l.channel)
      and (select true from pgqueue_arrival a
           where a.channel = l.channel and a.queue = l.queue and a.raw = l.raw and a.dequeue_at is not null limit 1) is null;
    if found then
        perform pgqueue_lane_arm(p_limit, p_channel);
    end if;
    for v_name in
        select c.name from pgqueue_channel c where c.name = any (v_released) and c.running = 0
    loop
        perform pgqueue_channel_prune(v_name);
    end loop;
    return v_count;
end
$$\;
create or replace function pgqueue_message_look(p_message pgqueue_message, p_clean boolean) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
-- Checks whether a message that waits for others still has to.  Returns true when it need not: it is ready then, or
-- cancelled where its policy requires that.  p_message is the row, which the caller has locked.
--   p_clean  the caller's transaction had written nothing before this call of pgqueue_message_settle, so that what it
--            read of awaited_id had been committed, and it will end soon
-- after_ids is in the order of ids.  awaited_id goes through it from the end, because messages end more or less in
-- their order: the ids behind it have ended.  One check probes only a part of a long after_ids, and records in
-- pgqueue_ended that the next call continues there.
-- pgqueue_message_settle calls this; consumers do not.
declare
    v_part constant integer := 2000;
    v_now bigint := pgqueue_now();
    v_ids bigint[] := p_message.after_ids;
    v_count integer := cardinality(v_ids);
    v_place integer := v_count;
    v_left bigint;
    v_check_at bigint;  -- null: the end will be recorded
    v_failed bigint;
    v_stays boolean := false;  -- it has not ended, and who ends it will see the waiting messages
    v_timeout text := current_setting('lock_timeout');
begin
    if p_message.attempt <> coalesce(p_message.suspended_attempt, p_message.attempt) or p_message.parked_at is not null then
        -- Its time-out came first: it has begun since then, and waits for nobody.
        update pgqueue_message m
        set after_ids = null, after_policy = null, check_at = null, checks = null, awaited_id = null
        where m.id = p_message.id;
        return false;
    end if;
    if p_message.awaited_id is not null then
        if exists (select from pgqueue_message d where d.id = p_message.awaited_id) then
            if p_clean then
                begin
                    -- Key share hides the row from no claim.  Though it skips what is locked, it waits for a transaction
                    -- that goes on after it has prolonged and then ended the other message.
                    perform set_config('lock_timeout', '10ms', true);
                    perform from pgqueue_message d where d.id = p_message.awaited_id for key share skip locked;
                    v_stays := found;
                    perform set_config('lock_timeout', v_timeout, true);
                exception
                    when lock_not_available then
                        v_stays := false;
                end;
            end if;
            if not v_stays then
                v_check_at := v_now + least(10000, greatest(100, (v_now - pgqueue_to_epoch(p_message.created_at)) / 10));
            end if;
            -- The result holds for all messages that wait for the same one.
            update pgqueue_message m
            set checks = least(m.checks, 1999999999) + 1, check_at = v_check_at
            where m.ctid = any (array(
                select w.ctid from pgqueue_message w
                where w.awaited_id = p_message.awaited_id and w.check_at <= v_now
                order by w.check_at
                limit 1000
                for no key update skip locked
            ));
            return false;
        end if;
        v_place := width_bucket(greatest(p_message.awaited_id, -9223372036854775807) - 1, v_ids);
    end if;

    if v_place > 0 then
        select v_ids[n] into v_left
        from generate_series(v_place, greatest(1, v_place - v_part + 1), -1) as n
        where (select true from pgqueue_message d where d.id = v_ids[n])
        limit 1;
        if found or v_place > v_part then
            update pgqueue_message m
            set checks = least(m.checks, 1999999999) + 1, check_at = v_now, awaited_id = coalesce(v_left, v_ids[v_place - v_part + 1])
            where m.id = p_message.id;
            if v_left is null then
                insert into pgqueue_ended (message_id, look_at) values (v_ids[v_place - v_part + 1], v_now);
            end if;
            return false;
        end if;
    end if;

    if p_message.after_policy = 'succeeded' then
        select a.message_id into v_failed
        from pgqueue_attempt a
        where a.message_id = any (v_ids[v_count - v_part + 1:]) and a.final and a.status <> 'succeeded'
        limit 1;
        if v_failed is null and v_count > v_part then  -- that part has succeeded: the next part follows
            update pgqueue_message m
            set checks = least(m.checks, 1999999999) + 1, check_at = v_now, awaited_id = v_ids[1], after_ids = v_ids[:v_count - v_part]
            where m.id = p_message.id;
            insert into pgqueue_ended (message_id, look_at) values (v_ids[1], v_now);
            return false;
        end if;
    end if;
    if v_failed is null then
        update pgqueue_message m
        set dequeue_at = v_now, in_line = true, after_ids = null, after_policy = null, check_at = null, checks = null, awaited_id = null
        where m.id = p_message.id;
        perform pgqueue_worker_wake(p_message.queue, p_message.task is not null);
    else
        delete from pgqueue_message m where m.id = p_message.id;
        p_message.dequeue_at := v_now;
        perform pgqueue_attempt_append(p_message, 'cancelled', true, jsonb_build_object(
            'class', 'django_pgqueue.exceptions.DependencyFailed',
            'message', format('message %s had to succeed first, but did not', v_failed)));
    end if;
    return true;
end
$$\;
create or replace function pgqueue_attempt_error(p_error text) returns jsonb
language plpgsql immutable strict
as $$
-- Converts what a consumer gives as an error to the form of the history, {"class": ..., "message": ..., "traceback": ...}.
-- p_error is such an object (all keys are optional) or any other text, which becomes the message; a JSON string becomes
-- its content.  Where the encoding of the database lacks a character of an object, ? stands for each escaped one.
-- The functions that end attempts call this; consumers do not.
declare
    v_text text := p_error;
    v_error jsonb;
begin
    for v_try in 1..2 loop
        begin
            v_error := v_text::jsonb;
            exit;
        exception
            -- PostgreSQL 15 does not know how to convert any character to SQL_ASCII.
            when untranslatable_character or feature_not_supported then
                v_text := regexp_replace(
                    p_error, E'(?<!\\\\)((?:\\\\\\\\)*)\\\\u(?!00[0-7])[0-9a-fA-F]{4}', E'\\1?', 'g');
            -- The text is not JSON, or is too large for jsonb.
            when data_exception or program_limit_exceeded then
                exit;
        end;
    end loop;
    if v_error = '{}' or v_error ?| array['class', 'message', 'traceback'] and jsonb_typeof(v_error) = 'object' then
        return v_error;
    end if;
    return jsonb_build_object(
        'message', case jsonb_typeof(v_error) when 'string' then v_error #>> '{}' else p_error end);
end
$$\;
create or replace function pgqueue_binding_compile(
    p_kind text,
    p_pattern text,
    out p_likeness text,
    out p_regex text
)
language plpgsql
as $$
-- Checks whether p_pattern can be bound, and raises an error that names it when it cannot.  Returns what routing keys
-- are compared with (see pgqueue_binding).
--   topic   words between dots, as in AMQP: * stands for one word, # for any number of words, also none
--   regex   a regular expression of PostgreSQL, which matches anywhere in the routing key: ^ and $ are yours to write
-- A pattern must not slow publishers down, so it has at most 255 bytes and no back-reference: without one a match reads
-- the key once.  Building the matcher could still take long.  So this function builds it and refuses a pattern that
-- takes more than 250 ms; and {m,n} may ask for 1,000 characters at most, which keeps that trial short.
declare
    v_words text[] := string_to_array(p_pattern, '.');
    v_word text;
    v_most integer;
    v_trial integer;
    v_began timestamptz;
    v_unknown text;
    v_ms numeric;
begin
    if p_pattern is null or octet_length(p_pattern) > 255 then
        raise exception 'the pattern "%" has % bytes, and may have 255', p_pattern, octet_length(p_pattern)
            using errcode = 'invalid_parameter_value';
    elsif p_kind = 'topic' then
        p_likeness := '.';
        p_regex := E'^\\.';
        foreach v_word in array v_words loop
            if v_word ~ '[*#]' and v_word not in ('*', '#') then
                raise exception 'the topic "%" has the word "%"', p_pattern, v_word
                    using errcode = 'invalid_parameter_value',
                          hint = '* and # match whole words between dots. For parts of words, use a regular expression.';
            end if;
            p_likeness := p_likeness || case v_word
                when '#' then '%'
                when '*' then '%.'
                else regexp_replace(v_word, E'([\\\\%_])', E'\\\\\\1', 'g') || '.'
            end;
            p_regex := p_regex || case v_word
                when '#' then E'([^.]*\\.)*'
                when '*' then E'[^.]*\\.'
                else regexp_replace(v_word, E'(\\W)', E'\\\\\\1', 'g') || E'\\.'
            end;
        end loop;
        p_regex := p_regex || '$';
        -- "like" alone decides patterns of whole words, with or without a # at the end.
        if '*' <> all (v_words) and '#' <> all (v_words[:cardinality(v_words) - 1]) then
            p_regex := null;
        end if;
    elsif p_kind = 'regex' then
        p_likeness := '%';
        p_regex := p_pattern;
        -- An escaped backslash does not begin a back-reference.
        if replace(p_pattern, E'\\\\', '') ~ E'\\\\[1-9]' then
            raise exception 'the regular expression "%" has a back-reference', p_pattern
                using errcode = 'invalid_regular_expression', hint = 'It could take for ever to match. Write the pattern without it.';
        end if;
        select coalesce(max(greatest(f.bound[1]::integer, nullif(f.bound[2], '')::integer)), 1) into v_most
        from regexp_matches(p_pattern, E'\\{([0-9]{1,9})(?:,([0-9]{0,9}))?\\\\?\\}', 'g') as f (bound);
        if v_most::bigint * length(p_pattern) > 1000 then
            raise exception 'the regular expression "%" repeats up to % times', p_pattern, v_most
                using errcode = 'invalid_regular_expression',
                      hint = 'The largest bound in {m,n}, multiplied by the length of the pattern, may be at most 1,000.';
        end if;
        for v_trial in 1..3 loop  -- the machine may be slow for other reasons
            v_began := clock_timestamp();
            begin
                perform '' ~ p_pattern;
                -- The session caches the matchers that it has built, so the measured one must be new to it.
                v_unknown := p_pattern || '|' || v_began;
                perform k.routing_key ~ v_unknown
                from (values (repeat('a', 255)), (repeat('0f.', 85))) as k (routing_key);
            exception when invalid_regular_expression then
                raise exception 'the regular expression "%" is not valid: %', p_pattern, sqlerrm
                    using errcode = 'invalid_regular_expression';
            end;
            v_ms := extract(epoch from clock_timestamp() - v_began) * 1000;
            exit when v_ms not between 250 and 1000;
        end loop;
        if v_ms > 250 then
            raise exception 'the regular expression "%" takes % ms', p_pattern, round(v_ms)
                using errcode = 'invalid_regular_expression', hint = 'It may take at most 250 ms. Use fewer ? and {m,n}.';
        end if;
    else
        raise exception 'unknown kind of pattern "%"', p_kind
            using errcode = 'invalid_parameter_value', hint = 'Use topic or regex.';
    end if;
end
$$\;
create or replace function pgqueue_channel_repair(p_name text default null)
returns table (p_channel text, p_before integer, p_after integer)
language plpgsql
set search_path from current
set jit = off
as $$
-- Counts the running messages of each channel again (p_name: of this one), and has dequeues look at all lanes with
-- waiting messages.  Returns the channels whose count was wrong.  No function of the queue, and no delete or update by
-- hand, makes it wrong; a disabled trigger, a truncate or a restored table may.  A channel waits for no more than its
-- interval: a clock that was ahead has set a later time.
-- Waits for the current dequeues of a channel; later dequeues skip it until the caller's transaction ends.
begin
    for p_channel in
        select distinct m.channel from pgqueue_message m where m.channel is not null and m.channel = coalesce(p_name, m.channel)
        union
        select c.name from pgqueue_channel c where c.name = coalesce(p_name, c.name)
        order by 1
    loop
        perform pgqueue_advisory_lock('channel ' || p_channel, p_wait_ms => 1000);
        insert into pgqueue_channel (name) values (p_channel) on conflict do nothing;
        select c.running into p_before from pgqueue_channel c where c.name = p_channel for update;
        -- One statement: a message that an open transaction has ended is still locked here, and its end not yet noted.
        select (select count(*) from pgqueue_message m where m.channel = p_channel and m.unlock_at is not null)
             + (select coalesce(sum(a.ended), 0) from pgqueue_arrival a where a.channel = p_channel)
        into p_after;
        update pgqueue_channel c set running = least(p_after, 1000000000) where c.name = p_channel and c.running <> p_after;
        update pgqueue_channel c set release_at = pgqueue_now() + c.release_interval_ms
        where c.name = p_channel and c.release_at > pgqueue_now() + c.release_interval_ms;
        insert into pgqueue_arrival (channel, queue, raw, dequeue_at)
        select m.channel, m.queue, m.task is null, min(m.dequeue_at)
        from pgqueue_message m
        where m.channel = p_channel and m.unlock_at is null
        group by m.channel, m.queue, m.task is null;
        if p_before <> p_after then
            return next;
        end if;
    end loop;
end
$$\;
create or replace function pgqueue_advisory_lock(
    p_what text,
    p_shared boolean default false,
    p_wait_ms integer default 0
) returns boolean
language plpgsql
set search_path from current
as $$
-- Takes an advisory lock until the end of the caller's transaction.  Returns whether the caller has it.  Waits for it
-- at most p_wait_ms, and at most half of statement_timeout; lock_timeout does not count.
-- The number of the lock is made from the oid of this queue's table, so queues in several schemas of a database, even
-- renamed ones, never share one.
-- Every login of the database may hold the lock, without any right.  So it may save work and waits, but nothing depends
-- on it: the caller goes on without it.  The functions of the queue call this; clients do not.
-- A transaction that would wait, and go on without, takes 3000 locks, and then does without: a server has room for some
-- thousands, and without room the transactions of others fail, too.
declare
    v_calls integer;
    v_number bigint := hashtextextended('pgqueue_message'::regclass::oid || ' ' || p_what, 0);
    v_lock_timeout text := current_setting('lock_timeout');
    v_wait_ms integer := p_wait_ms;
    v_bound text;
begin
    if p_wait_ms > 0 then
        v_calls := coalesce(nullif(current_setting('pgqueue.advisory_locks', true), '')::integer, 0);
        if v_calls >= 3000 then
            return false;
        end if;
        perform set_config('pgqueue.advisory_locks', (v_calls + 1)::text, true);
    end if;
    if p_shared and pg_try_advisory_xact_lock_shared(v_number) then
        return true;
    elsif not p_shared and pg_try_advisory_xact_lock(v_number) then
        return true;
    end if;
    v_bound := current_setting('statement_timeout');
    if v_bound <> '0' then
        v_wait_ms := least(v_wait_ms, extract(epoch from v_bound::interval) * 500);
    end if;
    if v_wait_ms <= 0 then  -- a lock_timeout of 0 means no limit
        return false;
    end if;
    begin
        perform set_config('lock_timeout', v_wait_ms::text, true);
        if p_shared then
            perform pg_advisory_xact_lock_shared(v_number);
        else
            perform pg_advisory_xact_lock(v_number);
        end if;
        perform set_config('lock_timeout', v_lock_timeout, true);
        return true;
    exception
        when lock_not_available then  -- the setting is rolled back
            return false;
    end;
end
$$\;
do $$
declare
    v_function record;
    v_role oid;
begin
    for v_function in
        with before as (
            select b.* from jsonb_to_recordset(current_setting('pgqueue.rights')::jsonb)
                as b (id bigint, name text, as_owner boolean, roles jsonb)
        )
        select p.oid::regprocedure as signature, n.nspname as schema, b.as_owner, b.roles,
               b.id = p.oid::bigint as is_same
        from before b
        join pg_proc p on p.proname = b.name
        join pg_namespace n on n.oid = p.pronamespace and n.nspname = current_schema()
        where case when b.id = p.oid::bigint then b.as_owner and not p.prosecdef
                   else not exists (select from before o where o.id = p.oid::bigint)
                        and not exists (select from pg_proc g where g.oid::bigint = b.id) end
    loop
        if v_function.as_owner then
            execute format('alter function %s security definer set search_path = %I, pg_temp',
                           v_function.signature, v_function.schema);
        end if;
        if not v_function.is_same then
            execute format('revoke all on function %s from public', v_function.signature);
            for v_role in select r::oid from jsonb_array_elements_text(v_function.roles) as r loop
                execute format('grant execute on function %s to %s', v_function.signature,
                               case v_role when 0 then 'public' else v_role::regrole::text end);
            end loop;
        end if;
    end loop;
    if jsonb_path_exists(current_setting('pgqueue.rights')::jsonb, '$[*] ? (@.is_safe == true)') then
        for v_function in
            select p.oid::regprocedure as signature, n.nspname as schema
            from pg_proc p join pg_namespace n on n.oid = p.pronamespace
            where n.nspname = current_schema() and p.proname like 'pgqueue\_%' and p.prokind = 'f'
              and p.proconfig::text like '%search\_path=%' and p.proconfig::text not like '%pg\_temp%'
        loop
            execute format('alter function %s set search_path = %I, pg_temp', v_function.signature, v_function.schema);
        end loop;
    end if;
    for v_function in
        select p.oid::regprocedure as signature
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = current_schema() and p.proname like 'pgqueue\_%' and p.prokind = 'f'
          and p.proconfig::text like '%$user%'
    loop
        execute format('alter function %s set search_path from current', v_function.signature);
    end loop;
end
$$;
\echo From 0.1.0: 0002_after_0_1_0.
\endif

\echo The queue in the schema :schema was that of :installed, and is that of 0.2.0 now.
\endif

-- What 0002_after_0_1_0 leaves for afterwards: it takes long, and keeps nobody waiting.
select string_to_array(:'installed', '.')::integer[] <= '{0, 2, 0}'::integer[] as is_left \gset
\if :is_left
set client_min_messages = warning;
select format('drop index concurrently %s', i.indexrelid::regclass)
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'pgqueue_message_parked_ix' and n.nspname = current_schema() and not i.indisvalid \gexec
create index concurrently if not exists pgqueue_message_parked_ix on pgqueue_message
    (queue, task, parked_at, id) where parked_at is not null and task is not null;
select format('drop index concurrently %s', i.indexrelid::regclass)
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'pgqueue_message_unknown_ix' and n.nspname = current_schema() and not i.indisvalid \gexec
create index concurrently if not exists pgqueue_message_unknown_ix on pgqueue_message
    (queue, task, unknown_since) where parked_at is not null and task is not null;
alter table pgqueue_message validate constraint pgqueue_message_counts_range;
alter table pgqueue_message validate constraint pgqueue_message_names_short;
select format('drop index concurrently %s', i.indexrelid::regclass)
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'pgqueue_message_suspended_ix' and n.nspname = current_schema() and not i.indisvalid \gexec
create index concurrently if not exists pgqueue_message_suspended_ix on pgqueue_message
    (awaited_event, id) where suspended_attempt is not null;
alter table pgqueue_attempt validate constraint pgqueue_attempt_status_known;
reset client_min_messages;
\endif

do $$
begin
    perform pg_advisory_unlock((
        select hashtextextended('pgqueue upgrade ' || n.oid, 0) from pg_namespace n where n.nspname = current_schema()
    ));
end
$$;
do $$
begin
    perform set_config(l.key, l.value, false) from jsonb_each_text(current_setting('pgqueue.limits', true)::jsonb) as l;
end
$$;
