-- Makes roles for a database that several programs share, each with the rights that it needs and no others.  Run it by
-- hand, after install.sql or the migrations, and again after every upgrade: a function that is made anew has no rights.
--   psql -f sql/roles.sql
-- You may repeat it.  Run it as a superuser or as the owner of the queue, who needs createrole for it.  The queue is
-- the one that the search_path finds.  roles_drop.sql is the way back.
--
--   pgqueue_producer   enqueues, publishes and emits.  No rights to tables: its functions run with those of their owner
--   pgqueue_consumer   runs workers; may do what producers may
--   pgqueue_reader     reads all tables and changes nothing
--   pgqueue_admin      everything but to alter or drop the tables; may do what the others may
--
-- No user logs in as one of them: grant pgqueue_producer to web;
-- A function that runs with the rights of its owner cannot find objects of others: its search_path is the schema of the
-- queue, then pg_temp, which would come first if it were not named; and only the owner may make objects in that schema.
\set ON_ERROR_STOP on
begin;
do $$
declare
    v_owner oid := (select c.relowner from pg_class c where c.oid = to_regclass('pgqueue_message'));
begin
    if v_owner is null then
        raise exception 'The search_path (%) finds no queue.', current_setting('search_path')
            using hint = 'To make one: psql -f sql/install.sql. For that of another schema: PGOPTIONS="-c search_path=..." '
                'psql -f sql/roles.sql';
    elsif not pg_has_role(v_owner, 'usage') then
        raise exception 'The queue belongs to %, and % may not grant rights to it.', v_owner::regrole, current_user
            using hint = 'Run roles.sql as its owner, or as a superuser.';
    end if;
end
$$;

select relnamespace::regnamespace::text as schema, relnamespace as schema_oid, relowner as owner_oid
from pg_class where oid = 'pgqueue_message'::regclass \gset

-- These print nothing when they are run again: the roles and memberships exist.
select format('create role %I nologin', r.name)
from unnest(array['pgqueue_producer', 'pgqueue_consumer', 'pgqueue_reader', 'pgqueue_admin']) as r (name)
where to_regrole(r.name) is null \gexec
select format('grant %I to %I', g.given, g.receiver)
from (values
    ('pgqueue_producer', 'pgqueue_consumer'), ('pgqueue_consumer', 'pgqueue_admin'), ('pgqueue_reader', 'pgqueue_admin')
) as g (given, receiver)
where not exists (
    select from pg_auth_members m where m.roleid = to_regrole(g.given) and m.member = to_regrole(g.receiver)) \gexec

-- One line for each function: which role may call it, and whether it runs with the rights of its owner.  arguments is
-- the number of parameters, where functions share a name.  A function that is missing here is for pgqueue_admin alone.
create temporary table pgqueue_right (name text, role text, as_owner boolean, arguments integer) on commit drop;
insert into pgqueue_right (name, role, as_owner, arguments) values
    ('pgqueue_message_create', 'producer', true, null),
    ('pgqueue_message_create_unique', 'producer', true, null),
    ('pgqueue_message_create_many', 'producer', true, null),
    ('pgqueue_message_create_after', 'producer', true, null),
    ('pgqueue_message_publish', 'producer', true, null),
    ('pgqueue_event_emit', 'producer', true, null),
    ('pgqueue_message_lock_keys', 'producer', false, null),
    ('pgqueue_advisory_lock', 'producer', false, null),
    ('pgqueue_clock', 'producer', false, null),
    ('pgqueue_now', 'producer', false, null),
    ('pgqueue_to_epoch', 'producer', false, null),
    ('pgqueue_from_epoch', 'producer', false, null),
    ('pgqueue_version', 'producer', false, null),

    ('pgqueue_clock', 'reader', false, null),
    ('pgqueue_now', 'reader', false, null),
    ('pgqueue_to_epoch', 'reader', false, null),
    ('pgqueue_from_epoch', 'reader', false, null),
    ('pgqueue_version', 'reader', false, null),
    ('pgqueue_message_levels', 'reader', false, null),
    ('pgqueue_message_queues', 'reader', false, null),
    ('pgqueue_message_next_at', 'reader', false, null),
    ('pgqueue_message_parked', 'reader', false, null),
    ('pgqueue_message_attention_at', 'reader', false, null),
    ('pgqueue_backlog', 'reader', false, null),
    ('pgqueue_channel_room', 'reader', false, null),
    ('pgqueue_exchange_route', 'reader', false, null),
    ('pgqueue_attempt_fingerprint', 'reader', false, null),
    ('pgqueue_attempt_error_group', 'reader', false, null),
    ('pgqueue_version_key', 'reader', false, null),
    ('pgqueue_edit_messages', 'reader', false, null),
    ('pgqueue_edit_attempts', 'reader', false, null),
    ('pgqueue_edit_check', 'reader', false, null),

    ('pgqueue_session_worker', 'consumer', false, null),
    ('pgqueue_message_is_large', 'consumer', false, null),
    ('pgqueue_message_readable', 'consumer', false, null),
    ('pgqueue_message_await_turn', 'consumer', false, null),
    ('pgqueue_message_dequeue', 'consumer', false, null),
    ('pgqueue_message_levels', 'consumer', false, null),
    ('pgqueue_message_queues', 'consumer', false, null),
    ('pgqueue_message_next_at', 'consumer', false, null),
    ('pgqueue_message_attention_at', 'consumer', false, null),
    ('pgqueue_message_lose', 'consumer', false, null),
    ('pgqueue_message_expire', 'consumer', false, null),
    ('pgqueue_quarantine_waits', 'consumer', false, null),
    ('pgqueue_quarantine_dequeue', 'consumer', false, null),
    ('pgqueue_message_settle', 'consumer', false, null),
    ('pgqueue_message_look', 'consumer', false, null),
    ('pgqueue_message_heartbeat', 'consumer', false, null),
    ('pgqueue_message_keep', 'consumer', false, null),
    ('pgqueue_message_release', 'consumer', false, null),
    ('pgqueue_message_abandon', 'consumer', false, null),
    ('pgqueue_message_park', 'consumer', false, null),
    ('pgqueue_message_parked', 'consumer', false, null),
    ('pgqueue_message_parked_calls', 'consumer', false, null),
    ('pgqueue_message_unpark', 'consumer', false, null),
    ('pgqueue_message_unknown_fail', 'consumer', false, null),
    ('pgqueue_message_progress', 'consumer', false, null),
    ('pgqueue_message_complete', 'consumer', false, null),
    ('pgqueue_message_defer', 'consumer', false, null),
    ('pgqueue_message_fail', 'consumer', false, null),
    ('pgqueue_name_require', 'consumer', false, null),
    ('pgqueue_step_refuse', 'consumer', false, null),
    ('pgqueue_step_record', 'consumer', false, null),
    ('pgqueue_step_record_many', 'consumer', false, null),
    ('pgqueue_step_load', 'consumer', false, null),
    ('pgqueue_step_result', 'consumer', false, null),
    ('pgqueue_step_maintain', 'consumer', true, null),
    ('pgqueue_message_suspend', 'consumer', false, null),
    ('pgqueue_event_arrive', 'consumer', false, null),
    ('pgqueue_child_add', 'consumer', false, null),
    ('pgqueue_child_cancel', 'consumer', false, null),
    ('pgqueue_child_outcomes', 'consumer', false, null),
    ('pgqueue_budget_spend', 'consumer', false, null),
    -- Ends an attempt that the caller holds.  The forms with one argument withdraw waiting messages of all producers.
    ('pgqueue_message_cancel', 'consumer', false, 6),
    ('pgqueue_message_cancellations', 'consumer', false, null),
    ('pgqueue_attempt_error', 'consumer', false, null),
    ('pgqueue_attempt_append', 'consumer', false, null),
    -- For the admin's job that enqueues a list again.  Readers of the history who enqueue could do it one by one.
    ('pgqueue_attempt_enqueue', 'consumer', false, null),
    -- Partitions belong to the owner of the table.
    ('pgqueue_attempt_maintain', 'consumer', true, null),
    ('pgqueue_histogram_sum', 'reader', false, null),
    ('pgqueue_histogram_sum', 'consumer', false, null),
    ('pgqueue_rollup_add', 'consumer', false, null),
    ('pgqueue_rollup_prune', 'consumer', false, null),
    ('pgqueue_worker_seen', 'consumer', false, null),
    ('pgqueue_worker_lacks', 'consumer', false, null),
    ('pgqueue_worker_version', 'consumer', false, null),
    ('pgqueue_version_key', 'consumer', false, null),
    ('pgqueue_worker_gone', 'consumer', false, null),
    ('pgqueue_worker_died', 'consumer', false, null),
    ('pgqueue_worker_number', 'consumer', false, null),
    ('pgqueue_worker_hold', 'consumer', false, null),
    ('pgqueue_worker_expire', 'consumer', false, null),
    ('pgqueue_worker_wake', 'consumer', false, null),
    ('pgqueue_worker_wake_by', 'consumer', false, null),
    ('pgqueue_lane_arm', 'consumer', false, null),
    ('pgqueue_lane_dequeue', 'consumer', false, null),
    ('pgqueue_lane_dequeue_apart', 'consumer', false, null),
    ('pgqueue_channel_room', 'consumer', false, null),
    ('pgqueue_channel_prune', 'consumer', false, null),
    ('pgqueue_channel_repair', 'consumer', false, null),
    ('pgqueue_schedule_declare', 'consumer', false, null),
    ('pgqueue_schedule_fire', 'consumer', false, null),
    ('pgqueue_schedule_prune', 'consumer', false, null),
    -- Workers do the edits that admins asked for.  They may not ask for one, nor write who did.
    ('pgqueue_edit_step', 'consumer', true, null),

    ('pgqueue_message_create_item', 'admin', false, null),
    ('pgqueue_message_lane', 'admin', false, null),
    ('pgqueue_message_ended', 'admin', false, null),
    ('pgqueue_message_cancel', 'admin', false, 1),
    ('pgqueue_message_request_cancel', 'admin', false, null),
    ('pgqueue_message_reschedule', 'admin', false, null),
    ('pgqueue_edit_ask', 'admin', false, null),
    ('pgqueue_edit_change', 'admin', false, null),
    ('pgqueue_edit_stop', 'admin', false, null),
    ('pgqueue_edit_resume', 'admin', false, null),
    ('pgqueue_worker_order', 'admin', false, null),
    ('pgqueue_queue_pause', 'admin', false, null),
    ('pgqueue_queue_resume', 'admin', false, null),
    ('pgqueue_attempt_partition', 'admin', true, null),
    ('pgqueue_attempt_drop', 'admin', true, null),
    ('pgqueue_lake_move', 'admin', false, null),
    ('pgqueue_lake_forget', 'admin', false, null),
    ('pgqueue_step_partition', 'admin', true, null),
    ('pgqueue_step_enqueue', 'admin', false, null),
    ('pgqueue_child_keep', 'admin', false, null),
    ('pgqueue_event_put', 'admin', false, null),
    ('pgqueue_approval_decide', 'admin', false, null),
    ('pgqueue_channel_set', 'admin', false, null),
    ('pgqueue_channel_release', 'admin', false, null),
    ('pgqueue_staged_enqueue', 'admin', false, null),
    ('pgqueue_staged_discard', 'admin', false, null),
    ('pgqueue_exchange_declare', 'admin', false, null),
    ('pgqueue_exchange_delete', 'admin', false, null),
    ('pgqueue_binding_compile', 'admin', false, null),
    ('pgqueue_binding_declare', 'admin', false, null),
    ('pgqueue_binding_delete', 'admin', false, null);

-- Revokes everything that was granted before: a right that was removed from the list above is gone.
select format('revoke all on function %s from public, pgqueue_producer, pgqueue_consumer, pgqueue_reader, pgqueue_admin',
              p.oid::regprocedure)
from pg_proc p where p.pronamespace = :schema_oid and p.proname like 'pgqueue\_%' \gexec
select format('revoke all on %s %s from public, pgqueue_producer, pgqueue_consumer, pgqueue_reader, pgqueue_admin',
              case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass)
from pg_class c
where c.relnamespace = :schema_oid and c.relname like 'pgqueue\_%' and c.relkind in ('r', 'p', 'S') \gexec
revoke create on schema :schema from public, pgqueue_producer, pgqueue_consumer, pgqueue_reader, pgqueue_admin;

-- Pins the path in all functions: they call each other, and each searches its own path.
select format('alter function %s security %s set search_path = %s, pg_temp',
              p.oid::regprocedure, case when coalesce(o.as_owner, false) then 'definer' else 'invoker' end, :'schema')
from pg_proc p
left join (select r.name, bool_or(r.as_owner) as as_owner from pgqueue_right r group by r.name) as o on o.name = p.proname
where p.pronamespace = :schema_oid and p.proname like 'pgqueue\_%' and p.prokind = 'f'
  and (o.as_owner or exists (select from unnest(p.proconfig) as s where s like 'search_path=%')) \gexec
select format('grant execute on function %s to %I', p.oid::regprocedure, 'pgqueue_' || r.role)
from pg_proc p
join pgqueue_right r on r.name = p.proname and coalesce(r.arguments, p.pronargs) = p.pronargs
where p.pronamespace = :schema_oid \gexec
select format('grant execute on function %s to pgqueue_admin', p.oid::regprocedure)
from pg_proc p where p.pronamespace = :schema_oid and p.proname like 'pgqueue\_%' and p.prokind = 'f' \gexec

grant usage on schema :schema to pgqueue_producer, pgqueue_consumer, pgqueue_reader, pgqueue_admin;
set local search_path = :schema, pg_temp;

-- Sessions read the partitions of the history through pgqueue_attempt, whose rights count.
grant select on pgqueue_message, pgqueue_attempt, pgqueue_attempt_default, pgqueue_worker, pgqueue_queue, pgqueue_channel,
    pgqueue_lane, pgqueue_arrival, pgqueue_ended, pgqueue_edit, pgqueue_schedule, pgqueue_schedule_slot,
    pgqueue_schedule_declaration, pgqueue_exchange, pgqueue_binding,
    pgqueue_ledger, pgqueue_staged, pgqueue_lake, pgqueue_replayed, pgqueue_rollup, pgqueue_rollup_position,
    pgqueue_step, pgqueue_step_default, pgqueue_budget, pgqueue_child, pgqueue_event, pgqueue_approval,
    pgqueue_report_hour, pgqueue_report_queue, pgqueue_report_error
    to pgqueue_reader;

-- Consumers append to the history and do not rewrite it.
grant select, insert on pgqueue_attempt to pgqueue_consumer;
grant usage on sequence pgqueue_attempt_id_seq to pgqueue_consumer;
grant select, update, delete on pgqueue_message to pgqueue_consumer;
grant select, insert, update, delete on pgqueue_worker, pgqueue_channel, pgqueue_lane, pgqueue_arrival,
    pgqueue_ended, pgqueue_schedule_slot, pgqueue_schedule_declaration, pgqueue_rollup, pgqueue_rollup_position
    to pgqueue_consumer;
grant select, insert, update on pgqueue_schedule to pgqueue_consumer;
grant select on pgqueue_queue, pgqueue_lake, pgqueue_edit to pgqueue_consumer;
grant select, insert on pgqueue_step to pgqueue_consumer;
grant select on pgqueue_event to pgqueue_consumer;
grant select, insert on pgqueue_approval to pgqueue_consumer;
grant select, insert, update on pgqueue_budget, pgqueue_child to pgqueue_consumer;

grant select, insert, update, delete on pgqueue_message, pgqueue_attempt, pgqueue_worker, pgqueue_queue, pgqueue_channel,
    pgqueue_lane, pgqueue_arrival, pgqueue_ended, pgqueue_edit, pgqueue_schedule, pgqueue_schedule_slot,
    pgqueue_schedule_declaration, pgqueue_exchange, pgqueue_binding,
    pgqueue_ledger, pgqueue_staged, pgqueue_lake, pgqueue_replayed, pgqueue_rollup, pgqueue_rollup_position,
    pgqueue_step, pgqueue_step_default, pgqueue_budget, pgqueue_child, pgqueue_event, pgqueue_approval,
    pgqueue_report_hour, pgqueue_report_queue, pgqueue_report_error
    to pgqueue_admin;
grant usage on sequence pgqueue_attempt_id_seq to pgqueue_admin;

-- A role that can make a function or an operator in the schema could have it called with the rights of the owner.
do $$
declare
    v_schema oid := (select c.relnamespace from pg_class c where c.oid = 'pgqueue_message'::regclass);
    v_owner oid := (select c.relowner from pg_class c where c.oid = 'pgqueue_message'::regclass);
    v_others text;
begin
    if exists (
        select from pg_namespace n, aclexplode(n.nspacl) as a
        where n.oid = v_schema and a.privilege_type = 'CREATE' and a.grantee = 0
    ) then
        raise exception 'every role may create objects in the schema %', v_schema::regnamespace
            using hint = format('Run as the owner of the schema: revoke create on schema %s from public.', v_schema::regnamespace);
    end if;
    select string_agg(o.what, ', ') into v_others
    from (
        select p.oid::regprocedure::text, p.proowner from pg_proc p where p.pronamespace = v_schema
        union all
        select o.oid::regoperator::text, o.oprowner from pg_operator o where o.oprnamespace = v_schema
        union all
        select c.oid::regclass::text, c.relowner from pg_class c
        where c.relnamespace = v_schema and c.relname like 'pgqueue\_%' and c.relkind in ('r', 'p', 'v', 'm', 'f')
    ) as o (what, owner)
    where o.owner <> v_owner and not (select r.rolsuper from pg_roles r where r.oid = o.owner);
    if v_others is not null then
        raise exception 'the schema % has objects of other roles: %', v_schema::regnamespace, v_others
            using hint = 'Such an object could be called with the rights of the owner. Put the queue into a schema of its own.';
    end if;
end
$$;
commit;
