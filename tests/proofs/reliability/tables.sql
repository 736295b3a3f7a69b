-- What was committed, written by the transactions themselves: triggers of the storm's own database.
create table storm_enqueued (token bigint not null, message_id bigint not null);
create table storm_effect (message_id bigint not null, attempt integer not null, worker text not null, token bigint);

create table storm_change (
    seq        bigint generated always as identity,
    xid        bigint not null default pg_current_xact_id()::text::bigint,
    at         timestamptz not null default clock_timestamp(),
    op         text not null,
    message_id bigint not null,
    attempt    integer not null,
    worker     text,
    dequeue_at bigint,
    channel    text,
    held_key   text,
    token      bigint,
    slot       text
);

create index storm_change_message_ix on storm_change (message_id);
create index storm_change_xid_ix on storm_change (xid) where op = 'I';

-- With its owner's rights: also what others do is written down.
create function storm_change() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_row pgqueue_message := case when tg_op = 'DELETE' then old else new end;
begin
    insert into storm_change (op, message_id, attempt, worker, dequeue_at, channel, held_key, token, slot)
    values (
        left(tg_op, 1), v_row.id, v_row.attempt, v_row.worker, v_row.dequeue_at, v_row.channel,
        case when v_row.cancel_requested_at is null and (v_row.attempt = 0 or not v_row.unique_until_started)
             then v_row.unique_key end,
        case when tg_op = 'INSERT' and jsonb_typeof(v_row.content #> '{args,0}') = 'number'
             then (v_row.content #>> '{args,0}')::bigint end,
        case when tg_op = 'INSERT' then (v_row.headers ->> 'schedule') || ' ' || (v_row.headers ->> 'slot') end);
    return null;
end
$$;

create trigger storm_change_whole after insert or delete on pgqueue_message
for each row execute function storm_change();
create trigger storm_change_update after update on pgqueue_message
for each row when (
    (old.attempt, old.worker, old.dequeue_at, old.channel, old.unique_key, old.cancel_requested_at)
    is distinct from (new.attempt, new.worker, new.dequeue_at, new.channel, new.unique_key, new.cancel_requested_at))
execute function storm_change();

-- A sleeper that takes its time to register: who enqueues meanwhile notifies nobody, and only its second look helps.
create function storm_slow_registration() returns trigger language plpgsql as $$
begin
    perform pg_sleep(0.2);
    return null;
end
$$;
create trigger storm_slow_registration after insert or update on pgqueue_worker
for each row when (new.asleep_until is not null and new.queues = '{probe}')
execute function storm_slow_registration();

create table storm_pad (n bigint, pad text);

-- Durable jobs.  Records of steps are numbered together with the changes of messages: the row lock of a message orders them.
create table storm_step_effect (
    seq bigint not null default nextval('storm_change_seq_seq'), message_id bigint not null, attempt integer not null, name text not null);
create table storm_step (
    seq bigint not null default nextval('storm_change_seq_seq'), at timestamptz not null default clock_timestamp(),
    message_id bigint not null, attempt integer not null, kind text not null, status text not null, name text not null, until bigint);
create table storm_child (parent_id bigint not null, message_id bigint not null);

create function storm_step() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    insert into storm_step (message_id, attempt, kind, status, name, until)
    values (new.message_id, new.attempt, new.kind, new.status, new.name, new.until);
    return null;
end
$$;
create trigger storm_step after insert on pgqueue_step for each row execute function storm_step();

-- Somebody wants the children, as those that the application enqueues.
create function storm_child() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    insert into storm_child (parent_id, message_id) values (new.parent_id, new.message_id);
    insert into storm_enqueued (token, message_id) values (-new.message_id, new.message_id);
    return null;
end
$$;
create trigger storm_child after insert on pgqueue_child for each row execute function storm_child();
