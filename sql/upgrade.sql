-- Upgrades the queue in the first schema of the search_path to the release of these files, without Django:
--   psql -f sql/upgrade.sql
-- All or nothing.  It does what is due, says what that was, and may be run again.  It waits for tables that are in use,
-- but never for so long at a time that others wait behind it.  If you use roles.sql, run that again for new functions.
-- Written by python -m tests.support.upgrade_sql, from the migrations: change those.
\set ON_ERROR_STOP on
begin;

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
    ('0.2.0', array['pgqueue_message', 'pgqueue_attempt', 'pgqueue_worker', 'pgqueue_queue', 'pgqueue_schedule', 'pgqueue_ledger', 'pgqueue_exchange', 'pgqueue_channel', 'pgqueue_ended', 'pgqueue_to_epoch', 'pgqueue_from_epoch', 'pgqueue_clock', 'pgqueue_now', 'pgqueue_advisory_lock', 'pgqueue_worker_wake', 'pgqueue_worker_wake_by', 'pgqueue_channel_room', 'pgqueue_message_is_large', 'pgqueue_message_readable', 'pgqueue_message_create', 'pgqueue_message_create_unique', 'pgqueue_message_create_after', 'pgqueue_message_create_item', 'pgqueue_message_lock_keys', 'pgqueue_message_create_many', 'pgqueue_message_reschedule', 'pgqueue_session_worker', 'pgqueue_message_levels', 'pgqueue_message_queues', 'pgqueue_message_next_at', 'pgqueue_message_attention_at', 'pgqueue_message_await_turn', 'pgqueue_message_dequeue', 'pgqueue_message_heartbeat', 'pgqueue_message_keep', 'pgqueue_message_progress', 'pgqueue_message_request_cancel', 'pgqueue_message_cancellations', 'pgqueue_message_release', 'pgqueue_attempt_error', 'pgqueue_attempt_append', 'pgqueue_message_complete', 'pgqueue_message_defer', 'pgqueue_message_fail', 'pgqueue_message_cancel', 'pgqueue_message_lose', 'pgqueue_message_expire', 'pgqueue_quarantine_waits', 'pgqueue_quarantine_dequeue', 'pgqueue_message_park', 'pgqueue_message_parked', 'pgqueue_message_parked_calls', 'pgqueue_message_unpark', 'pgqueue_message_unknown_fail', 'pgqueue_message_ended', 'pgqueue_message_look', 'pgqueue_message_settle', 'pgqueue_attempt_partition', 'pgqueue_attempt_maintain', 'pgqueue_attempt_fingerprint', 'pgqueue_attempt_drop', 'pgqueue_attempt_enqueue', 'pgqueue_message_lane', 'pgqueue_channel_prune', 'pgqueue_lane_arm', 'pgqueue_lane_dequeue', 'pgqueue_lane_dequeue_apart', 'pgqueue_channel_set', 'pgqueue_channel_release', 'pgqueue_channel_repair', 'pgqueue_queue_pause', 'pgqueue_queue_resume', 'pgqueue_backlog', 'pgqueue_schedule_declare', 'pgqueue_schedule_fire', 'pgqueue_schedule_prune', 'pgqueue_exchange_declare', 'pgqueue_exchange_delete', 'pgqueue_exchange_route', 'pgqueue_binding_compile', 'pgqueue_binding_declare', 'pgqueue_binding_delete', 'pgqueue_message_publish', 'pgqueue_worker_seen', 'pgqueue_worker_lacks', 'pgqueue_version_key', 'pgqueue_worker_version', 'pgqueue_worker_gone', 'pgqueue_worker_died', 'pgqueue_staged_enqueue', 'pgqueue_staged_discard', 'pgqueue_version'])
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
select set_config('pgqueue.missing', :'missing', true) as missing \gset
do $$
begin
    raise exception 'the queue in the schema % lacks %', current_schema(), current_setting('pgqueue.missing')
        using hint = 'Restore it from sql/ of its release, or remove everything: psql -f sql/uninstall.sql';
end
$$;
\elif :is_newer
\echo The queue in the schema :schema is that of :installed, newer than these files (0.2.0). Nothing was done.
\elif :is_current
\echo The queue in the schema :schema is that of 0.2.0. Nothing was done.
\else

-- From 0.1.0: 0002_after_0_1_0
select string_to_array(:'installed', '.')::integer[] <= '{0, 1, 0}'::integer[] as is_due \gset
\if :is_due
do $$
declare
    v_lock_timeout text := current_setting('lock_timeout');
    v_give_up_at timestamptz := clock_timestamp() + interval '60 s';
    v_others text;
begin
    -- A lock that was not got at once is not waited for: statements of others would queue up behind.
    perform set_config('lock_timeout', '20ms', true);
    loop
        begin
            lock table pgqueue_worker, pgqueue_message in access exclusive mode;
            exit;
        exception when lock_not_available then
            if clock_timestamp() > v_give_up_at then
                select string_agg(format('session %s (%s since %s)', o.pid, o.state, o.xact_start), ', ') into v_others
                from (
                    select distinct a.pid, a.state, a.xact_start
                    from pg_locks l join pg_stat_activity a on a.pid = l.pid
                    where l.relation = any (array['pgqueue_worker', 'pgqueue_message']::regclass[]) and l.granted
                      and a.pid <> pg_backend_pid()
                ) as o;
                raise exception 'the queue was in use for more than 60 seconds, by %', v_others
                    using errcode = 'lock_not_available',
                          hint = 'Nothing was changed. Wait for the session or end it, and run the upgrade again.';
            end if;
            perform pg_sleep(0.1 + random() / 5);
        end;
    end loop;
    perform set_config('lock_timeout', v_lock_timeout, true);
end
$$;
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
$$;
alter table pgqueue_message add column unknown_since bigint, add column parked_at bigint;
alter table pgqueue_worker add column lacks text[],
    add constraint pgqueue_worker_lacks_few
        check (cardinality(lacks) <= 50 and octet_length(array_to_string(lacks, '')) <= 12750);
alter table pgqueue_message add column max_lost smallint;
alter table pgqueue_message
    drop constraint pgqueue_message_counts_range,
    add constraint pgqueue_message_counts_range check (
        least(attempt, max_attempts, checks, max_lost) >= 0 and greatest(attempt, max_attempts, checks) <= 2000000000) not valid;
alter table pgqueue_message add column version text;
alter table pgqueue_message
    drop constraint pgqueue_message_names_short,
    add constraint pgqueue_message_names_short check (
        queue <> '' and greatest(octet_length(queue), octet_length(channel), octet_length(task), octet_length(worker), octet_length(unique_key) - 2045, octet_length(version) + 155) <= 255) not valid;
alter table pgqueue_worker add column version text, add constraint pgqueue_worker_version_short
    check (octet_length(version) <= 100 and version !~ '[\u0001-\u001f\u007f]');
alter table pgqueue_worker add column silent_until bigint;
\ir message/pgqueue_message_is_large.sql
\ir message/pgqueue_message_readable.sql
\ir attempt/pgqueue_attempt_append.sql
\ir message/pgqueue_message_defer.sql
\ir message/pgqueue_message_lane.sql
\ir message/pgqueue_message_reschedule.sql
\ir message/pgqueue_message_park.sql
\ir message/pgqueue_message_parked.sql
\ir message/pgqueue_message_parked_calls.sql
\ir message/pgqueue_message_unpark.sql
\ir message/pgqueue_message_unknown_fail.sql
\ir worker/pgqueue_worker_lacks.sql
\ir worker/pgqueue_version_key.sql
\ir worker/pgqueue_worker_version.sql
\ir worker/pgqueue_worker_wake.sql
\ir worker/pgqueue_worker_wake_by.sql
\ir worker/pgqueue_worker_seen.sql
\ir worker/pgqueue_worker_gone.sql
drop function if exists pgqueue_message_create(jsonb, text, text, integer, bigint, text, jsonb, integer);
\ir message/pgqueue_message_create.sql
drop function if exists pgqueue_message_create_many(jsonb, text, text, integer, bigint, text, jsonb, integer);
drop function if exists pgqueue_message_create_many(jsonb);
\ir message/pgqueue_message_create_many.sql
drop function if exists pgqueue_message_create_unique(text, jsonb, text, text, integer, bigint, text, jsonb, integer, text, boolean);
\ir message/pgqueue_message_create_unique.sql
\ir message/pgqueue_message_create_item.sql
drop function if exists pgqueue_message_create_after(bigint[], jsonb, text, text, integer, bigint, text, jsonb, integer, text);
\ir message/pgqueue_message_create_after.sql
\ir message/pgqueue_message_lose.sql
drop function if exists pgqueue_schedule_fire(text, bigint[], bigint, bigint, text, text, boolean, text);
\ir schedule/pgqueue_schedule_fire.sql
\ir channel/pgqueue_lane_dequeue.sql
\ir channel/pgqueue_lane_dequeue_apart.sql
\ir message/pgqueue_message_dequeue.sql
\ir message/pgqueue_quarantine_dequeue.sql
drop function if exists pgqueue_message_publish(text, text, jsonb, jsonb, integer, bigint, boolean);
\ir message/pgqueue_message_publish.sql
drop function if exists pgqueue_attempt_enqueue(bigint[]);
\ir attempt/pgqueue_attempt_enqueue.sql
\ir message/pgqueue_message_attention_at.sql
\ir queue/pgqueue_backlog.sql
\ir schedule/pgqueue_schedule_declare.sql
\ir staged/pgqueue_staged_enqueue.sql
\ir queue/pgqueue_version.sql
\ir message/pgqueue_message_release.sql
\ir message/pgqueue_quarantine_waits.sql
\ir attempt/pgqueue_attempt_partition.sql
\ir attempt/pgqueue_attempt_drop.sql
\ir message/pgqueue_message_ended.sql
\ir message/pgqueue_message_complete.sql
\ir message/pgqueue_message_progress.sql
\ir message/pgqueue_message_settle.sql
\ir worker/pgqueue_session_worker.sql
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
end
$$;
\echo From 0.1.0: 0002_after_0_1_0 (60 statements and files).
\endif

\echo The queue in the schema :schema was that of :installed, and is that of 0.2.0 now.
\endif
commit;

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
reset client_min_messages;
\endif
