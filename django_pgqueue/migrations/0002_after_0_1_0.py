"""Brings a queue of 0.1.0 to the SQL of today."""

from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.db.models.functions import Now

import django_pgqueue.models.fields
from django_pgqueue.functions import sql_files
from django_pgqueue.functions.replace_function import ReplaceFunction
from django_pgqueue.functions.upgrade import Upgrade

PARK = """
alter table pgqueue_message add column unknown_since bigint, add column parked_at bigint;
alter table pgqueue_worker add column lacks text[],
    add constraint pgqueue_worker_lacks_few
        check (cardinality(lacks) <= 50 and octet_length(array_to_string(lacks, '')) <= 12750),
    add column refuses text[],
    add constraint pgqueue_worker_refuses_few
        check (cardinality(refuses) <= 50 and octet_length(array_to_string(refuses, '')) <= 12750);
"""
# What is parked becomes ready again, at the place that it had.
UNPARK = """update pgqueue_message m
set dequeue_at = case when m.alone_at is null then coalesce(m.unknown_since, m.parked_at) else 9223372036854775807 end,
    alone_at = case when m.alone_at is not null then coalesce(m.unknown_since, m.parked_at) end,
    in_line = m.alone_at is null, parked_at = null
from (
    select p.id from pgqueue_message p where p.parked_at is not null and p.unlock_at is null order by p.id for update
) as parked
where m.id = parked.id"""
NEVER_PARKED = """
alter table pgqueue_message drop column unknown_since, drop column parked_at;
alter table pgqueue_worker drop column lacks, drop column refuses;
"""

COUNTS = """
alter table pgqueue_message
    drop constraint pgqueue_message_counts_range,
    add constraint pgqueue_message_counts_range check (
        least({columns}) >= 0 and greatest(attempt, max_attempts, checks) <= 2000000000) not valid
"""

NAMES = """
alter table pgqueue_message
    drop constraint pgqueue_message_names_short,
    add constraint pgqueue_message_names_short check (
        queue <> '' and greatest({lengths}) <= 255) not valid
"""
LENGTHS = (
    "octet_length(queue), octet_length(channel), octet_length(task), octet_length(worker), "
    "octet_length(unique_key) - 2045"
)

VERSION_OF_WORKER = r"""
alter table pgqueue_worker add column version text, add constraint pgqueue_worker_version_short
    check (octet_length(version) <= 100 and version !~ '[\u0001-\u001f\u007f]')
"""

WORKERS_ASKED_FOR = """
alter table pgqueue_worker add column is_asleep boolean not null
    generated always as (asleep_until is not null) stored;
create index pgqueue_worker_asleep_ix on pgqueue_worker (id) where is_asleep;
create index pgqueue_worker_room_ix on pgqueue_worker (id) where has_room;
create index pgqueue_worker_silent_ix on pgqueue_worker (id) where silent_until is not null;
"""
NO_WORKERS_ASKED_FOR = """
drop index pgqueue_worker_room_ix;
drop index pgqueue_worker_silent_ix;
alter table pgqueue_worker drop column is_asleep;
"""

# Durable tasks: their messages are suspended, and their steps, events and children have tables.
DURABLE = """
alter table pgqueue_message add column suspended_attempt integer, add column awaited_event text;
alter table pgqueue_ended add column event text;
"""
NOT_DURABLE = """
drop table pgqueue_approval, pgqueue_event, pgqueue_child, pgqueue_budget, pgqueue_step;
alter table pgqueue_message drop column suspended_attempt, drop column awaited_event;
alter table pgqueue_ended drop column event;
"""
STATUSES = """
alter table pgqueue_attempt
    drop constraint pgqueue_attempt_status_known,
    add constraint pgqueue_attempt_status_known check (status in ({statuses})) not valid
"""
# Rows of days are moved and deleted, which PostgreSQL refuses without it where a publication is for all tables, or
# publishes days as rows of their table.
IDENTITY_OF_DAYS = """
do $$
declare
    v_day regclass;
begin
    for v_day in select t.relid from pg_partition_tree('pgqueue_attempt') as t loop
        execute format('alter table %s replica identity {}', v_day);
    end loop;
end
$$
"""
# Fixtures have ids, which loaddata inserts.
IDS_OF_REPORTS = """
alter table pgqueue_report_hour alter column id set generated {kind};
alter table pgqueue_report_queue alter column id set generated {kind};
alter table pgqueue_report_error alter column id set generated {kind};
"""
STATUSES_OF_0_1 = "'succeeded', 'deferred', 'retried', 'failed', 'cancelled', 'lost'"
DURABLE_MODELS: list[Operation] = [
    migrations.CreateModel(
        name="Approval",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "message_id", "name", blank=True, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("message_id", models.BigIntegerField()),
            ("asked_at", models.DateTimeField()),
            ("decided_at", models.DateTimeField(blank=True, null=True)),
            ("approved", models.BooleanField(blank=True, null=True)),
            ("name", models.TextField()),
            ("permission", models.TextField(blank=True, null=True)),
            ("decided_by", models.TextField(blank=True, null=True)),
            ("comment", models.TextField(blank=True, null=True)),
            ("details", models.JSONField(blank=True, null=True)),
        ],
        options={
            "db_table": "pgqueue_approval",
        },
    ),
    migrations.CreateModel(
        name="Budget",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "message_id", "name", blank=True, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("message_id", models.BigIntegerField()),
            ("name", models.TextField()),
            ("spent", models.DecimalField(decimal_places=100, max_digits=1000)),
        ],
        options={
            "db_table": "pgqueue_budget",
        },
    ),
    migrations.CreateModel(
        name="Child",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "message_id", "parent_id", blank=True, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("message_id", models.BigIntegerField()),
            ("parent_id", models.BigIntegerField()),
            ("created_at", models.DateTimeField()),
            ("cancels", models.BooleanField(db_default=True)),
            ("status", models.TextField(blank=True, null=True)),
            ("error_class", models.TextField(blank=True, null=True)),
            ("error_message", models.TextField(blank=True, null=True)),
            ("result", models.JSONField(blank=True, null=True)),
            ("by_after", models.BooleanField(db_default=False)),
        ],
        options={
            "db_table": "pgqueue_child",
        },
    ),
    migrations.CreateModel(
        name="Event",
        fields=[
            ("name", models.TextField(primary_key=True, serialize=False)),
            ("emitted_at", models.DateTimeField()),
            ("payload", models.JSONField()),
        ],
        options={
            "db_table": "pgqueue_event",
            "permissions": (("emit_event", "Can emit events"),),
        },
    ),
    migrations.CreateModel(
        name="Step",
        fields=[
            (
                "pk",
                models.CompositePrimaryKey(
                    "message_id", "name", "recorded_at", blank=True, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("message_id", models.BigIntegerField()),
            ("recorded_at", models.DateTimeField()),
            ("started_at", models.DateTimeField(blank=True, null=True)),
            ("finished_at", models.DateTimeField()),
            ("until", django_pgqueue.models.fields.EpochField(blank=True, null=True)),
            ("attempt", models.IntegerField()),
            ("kind", models.TextField()),
            ("status", models.TextField()),
            ("name", models.TextField()),
            ("error", models.TextField(blank=True, null=True)),
            ("result", models.JSONField(blank=True, null=True)),
        ],
        options={
            "db_table": "pgqueue_step",
        },
    ),
    migrations.AddField(
        model_name="ended",
        name="event",
        field=models.TextField(null=True),
    ),
    migrations.AddField(
        model_name="message",
        name="awaited_event",
        field=models.TextField(blank=True, null=True),
    ),
    migrations.AddField(
        model_name="message",
        name="suspended_attempt",
        field=models.IntegerField(blank=True, null=True),
    ),
    migrations.AlterField(
        model_name="attempt",
        name="status",
        field=models.TextField(
            choices=[
                ("succeeded", "Succeeded"),
                ("deferred", "Deferred"),
                ("retried", "Retried"),
                ("failed", "Failed"),
                ("cancelled", "Cancelled"),
                ("lost", "Lost"),
                ("suspended", "Suspended"),
            ]
        ),
    ),
]
# What is suspended becomes ready, and begins anew: the code of 0.1.0 has no durable tasks.
RESUME = """update pgqueue_message m
set dequeue_at = pgqueue_now(), in_line = true, suspended_attempt = null
from (
    select s.id from pgqueue_message s
    where s.suspended_attempt is not null and s.suspended_attempt = s.attempt and s.unlock_at is null
      and s.after_ids is null and s.parked_at is null
    order by s.id for update
) as suspended
where m.id = suspended.id"""
DEFERRED = "update pgqueue_attempt set status = 'deferred' where status = 'suspended'"


ORDERS = """
alter table pgqueue_worker add column ordered text, add column ordered_slots integer, add column ordered_at timestamptz,
    add column ordered_by text,
    add constraint pgqueue_worker_order_known check (ordered in ('pause', 'stop') and ordered_slots between 1 and 1000
        and octet_length(ordered_by) <= 1020
        and ordered_at between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00')
"""

ROLLUP = migrations.CreateModel(
    name="Rollup",
    fields=[
        ("id", models.BigAutoField(primary_key=True, serialize=False)),
        ("starts_at", models.DateTimeField()),
        ("minutes", models.SmallIntegerField()),
        ("queue", models.TextField()),
        ("task", models.TextField(blank=True, null=True)),
        ("succeeded", models.BigIntegerField()),
        ("deferred", models.BigIntegerField()),
        ("retried", models.BigIntegerField()),
        ("failed", models.BigIntegerField()),
        ("cancelled", models.BigIntegerField()),
        ("lost", models.BigIntegerField()),
        ("messages", models.BigIntegerField()),
        ("message_attempts", models.BigIntegerField()),
        ("wait_ms", models.FloatField()),
        ("run_ms", models.FloatField()),
        ("wait_histogram", models.JSONField()),
        ("run_histogram", models.JSONField()),
    ],
    options={"db_table": "pgqueue_rollup", "default_permissions": ()},
)


class Migration(Upgrade):
    dependencies = [("django_pgqueue", "0001_initial")]
    since = "0.1.0"
    locks = (
        "pgqueue_message",
        "pgqueue_attempt",
        "pgqueue_worker",
        "pgqueue_ended",
        "pgqueue_report_hour",
        "pgqueue_report_queue",
        "pgqueue_report_error",
    )
    afterwards = (
        """create index concurrently if not exists pgqueue_message_parked_ix on pgqueue_message
    (queue, task, parked_at, id) where parked_at is not null and task is not null""",
        """create index concurrently if not exists pgqueue_message_unknown_ix on pgqueue_message
    (queue, task, unknown_since) where parked_at is not null and task is not null""",
        "alter table pgqueue_message validate constraint pgqueue_message_counts_range",
        "alter table pgqueue_message validate constraint pgqueue_message_names_short",
        """create index concurrently if not exists pgqueue_message_suspended_ix on pgqueue_message
    (awaited_event, id) where suspended_attempt is not null""",
        "alter table pgqueue_attempt validate constraint pgqueue_attempt_status_known",
    )
    before_the_way_back = (UNPARK, RESUME, DEFERRED)
    after_the_way_back = (
        "alter table pgqueue_attempt validate constraint pgqueue_attempt_status_known",
        "alter table pgqueue_message validate constraint pgqueue_message_counts_range",
        "alter table pgqueue_message validate constraint pgqueue_message_names_short",
    )

    operations = [
        # Messages that a worker does not know are parked.
        migrations.RunSQL(
            PARK,
            reverse_sql=NEVER_PARKED,
            state_operations=[
                migrations.AddField(
                    "message", "unknown_since", django_pgqueue.models.fields.EpochField(blank=True, null=True)
                ),
                migrations.AddField(
                    "message", "parked_at", django_pgqueue.models.fields.EpochField(blank=True, null=True)
                ),
                migrations.AddField("worker", "lacks", django_pgqueue.models.fields.NamesField(blank=True, null=True)),
                migrations.AddField(
                    "worker", "refuses", django_pgqueue.models.fields.NamesField(blank=True, null=True)
                ),
            ],
        ),
        # max_lost: how often a worker may die while it runs a message.
        migrations.RunSQL(
            [
                "alter table pgqueue_message add column max_lost smallint",
                COUNTS.format(columns="attempt, max_attempts, checks, max_lost"),
            ],
            reverse_sql=[
                COUNTS.format(columns="attempt, max_attempts, checks"),
                "alter table pgqueue_message drop column max_lost",
            ],
            state_operations=[
                migrations.AddField("message", "max_lost", models.SmallIntegerField(blank=True, null=True)),
            ],
        ),
        # version: which deploy has enqueued a message, and which one a worker runs.
        migrations.RunSQL(
            [
                "alter table pgqueue_message add column version text",
                NAMES.format(lengths=f"{LENGTHS}, octet_length(version) + 155"),
                VERSION_OF_WORKER,
            ],
            reverse_sql=[
                NAMES.format(lengths=LENGTHS),
                "alter table pgqueue_message drop column version",
                "alter table pgqueue_worker drop column version",
            ],
            state_operations=[
                migrations.AddField("message", "version", models.TextField(blank=True, null=True)),
                migrations.AddField("worker", "version", models.TextField(blank=True, null=True)),
            ],
        ),
        # silent_until: until when a worker that rests says nothing.
        migrations.RunSQL(
            "alter table pgqueue_worker add column silent_until bigint",
            reverse_sql="alter table pgqueue_worker drop column silent_until",
            state_operations=[
                migrations.AddField(
                    "worker", "silent_until", django_pgqueue.models.fields.EpochField(blank=True, null=True)
                ),
            ],
        ),
        # server_started_at: a session of the worker holds its advisory lock, on the server that was started then.
        migrations.RunSQL(
            "alter table pgqueue_worker add column server_started_at bigint",
            reverse_sql="alter table pgqueue_worker drop column server_started_at",
            state_operations=[
                migrations.AddField(
                    "worker", "server_started_at", django_pgqueue.models.fields.EpochField(blank=True, null=True)
                ),
            ],
        ),
        # What each enqueue asks about the workers is in an index.
        migrations.RunSQL(WORKERS_ASKED_FOR, reverse_sql=NO_WORKERS_ASKED_FOR),
        # How far each lake has read the history.
        migrations.RunSQL(sql_files.load("pgqueue_lake", release="0.2.0"), reverse_sql="drop table pgqueue_lake"),
        # Edits: an action for everything that matches a filter.
        migrations.RunSQL(
            sql_files.load("pgqueue_edit", release="0.2.0"),
            reverse_sql="drop table pgqueue_edit",
            state_operations=[
                migrations.CreateModel(
                    name="Edit",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("first_id", models.BigIntegerField()),
                        ("last_id", models.BigIntegerField()),
                        ("position", models.BigIntegerField()),
                        ("done", models.BigIntegerField(db_default=0)),
                        ("asked", models.BigIntegerField(db_default=0)),
                        ("awaiting", models.BigIntegerField(db_default=0)),
                        ("skipped", models.BigIntegerField(db_default=0)),
                        ("asked_at", models.DateTimeField(db_default=Now())),
                        ("started_at", models.DateTimeField(blank=True, null=True)),
                        ("stopped_at", models.DateTimeField(blank=True, null=True)),
                        ("finished_at", models.DateTimeField(blank=True, null=True)),
                        ("action", models.TextField()),
                        ("asked_by", models.TextField()),
                        ("stopped_by", models.TextField(blank=True, null=True)),
                        ("error", models.TextField(blank=True, null=True)),
                        ("filter", models.JSONField()),
                        ("parameters", models.JSONField()),
                    ],
                    options={"db_table": "pgqueue_edit", "default_permissions": ("view",)},
                ),
            ],
        ),
        # Which messages were enqueued again.
        migrations.RunSQL(
            sql_files.load("pgqueue_replayed", release="0.2.0"), reverse_sql="drop table pgqueue_replayed"
        ),
        # Durable tasks.
        migrations.RunSQL(
            [
                DURABLE,
                STATUSES.format(statuses=f"{STATUSES_OF_0_1}, 'suspended'"),
                sql_files.load("pgqueue_step", release="0.2.0"),
                sql_files.load("pgqueue_event", release="0.2.0"),
            ],
            reverse_sql=[NOT_DURABLE, STATUSES.format(statuses=STATUSES_OF_0_1)],
            state_operations=DURABLE_MODELS,
        ),
        ReplaceFunction("pgqueue_message_is_large", since="0.1.0"),
        ReplaceFunction("pgqueue_message_readable", since="0.1.0"),
        ReplaceFunction("pgqueue_attempt_append", since="0.1.0"),
        ReplaceFunction("pgqueue_message_defer", since="0.1.0"),
        ReplaceFunction("pgqueue_message_lane", since="0.1.0"),
        ReplaceFunction("pgqueue_message_reschedule", since="0.1.0"),
        ReplaceFunction("pgqueue_message_park", since="0.1.0"),
        ReplaceFunction("pgqueue_message_parked", since="0.1.0"),
        ReplaceFunction("pgqueue_message_parked_calls", since="0.1.0"),
        ReplaceFunction("pgqueue_message_unpark", since="0.1.0"),
        ReplaceFunction("pgqueue_message_unknown_fail", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_lacks", since="0.1.0"),
        ReplaceFunction("pgqueue_version_key", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_version", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_wake", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_wake_by", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_seen", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_gone", since="0.1.0"),
        ReplaceFunction("pgqueue_message_create", since="0.1.0"),
        ReplaceFunction("pgqueue_message_create_many", since="0.1.0"),
        ReplaceFunction("pgqueue_message_create_unique", since="0.1.0"),
        ReplaceFunction("pgqueue_message_create_item", since="0.1.0"),
        ReplaceFunction("pgqueue_message_create_after", since="0.1.0"),
        ReplaceFunction("pgqueue_message_lose", since="0.1.0"),
        ReplaceFunction("pgqueue_message_abandon", since="0.1.0"),
        ReplaceFunction("pgqueue_schedule_fire", since="0.1.0"),
        # They return rows of pgqueue_message: until they are made anew, open sessions expect its former columns.
        ReplaceFunction("pgqueue_lane_dequeue", since="0.1.0"),
        ReplaceFunction("pgqueue_lane_dequeue_apart", since="0.1.0"),
        ReplaceFunction("pgqueue_message_dequeue", since="0.1.0"),
        ReplaceFunction("pgqueue_quarantine_dequeue", since="0.1.0"),
        ReplaceFunction("pgqueue_message_publish", since="0.1.0"),
        ReplaceFunction("pgqueue_attempt_enqueue", since="0.1.0"),
        ReplaceFunction("pgqueue_message_attention_at", since="0.1.0"),
        ReplaceFunction("pgqueue_backlog", since="0.1.0"),
        ReplaceFunction("pgqueue_schedule_declare", since="0.1.0"),
        ReplaceFunction("pgqueue_staged_enqueue", since="0.1.0"),
        # The version.
        ReplaceFunction("pgqueue_version", since="0.1.0"),
        ReplaceFunction("pgqueue_message_release", since="0.1.0"),
        ReplaceFunction("pgqueue_quarantine_waits", since="0.1.0"),
        ReplaceFunction("pgqueue_attempt_partition", since="0.1.0"),
        ReplaceFunction("pgqueue_attempt_drop", since="0.1.0"),
        ReplaceFunction("pgqueue_message_ended", since="0.1.0"),
        ReplaceFunction("pgqueue_message_complete", since="0.1.0"),
        ReplaceFunction("pgqueue_message_progress", since="0.1.0"),
        ReplaceFunction("pgqueue_message_settle", since="0.1.0"),
        ReplaceFunction("pgqueue_session_worker", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_number", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_hold", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_expire", since="0.1.0"),
        ReplaceFunction("pgqueue_attempt_maintain", since="0.1.0"),
        ReplaceFunction("pgqueue_lake_move", since="0.1.0"),
        ReplaceFunction("pgqueue_lake_forget", since="0.1.0"),
        ReplaceFunction("pgqueue_attempt_error_group", since="0.1.0"),
        ReplaceFunction("pgqueue_edit_check", since="0.1.0"),
        ReplaceFunction("pgqueue_edit_messages", since="0.1.0"),
        ReplaceFunction("pgqueue_edit_attempts", since="0.1.0"),
        ReplaceFunction("pgqueue_edit_ask", since="0.1.0"),
        ReplaceFunction("pgqueue_edit_stop", since="0.1.0"),
        ReplaceFunction("pgqueue_edit_resume", since="0.1.0"),
        ReplaceFunction("pgqueue_edit_change", since="0.1.0"),
        ReplaceFunction("pgqueue_edit_step", since="0.1.0"),
        # Orders of people to a worker.
        migrations.RunSQL(
            ORDERS,
            reverse_sql="alter table pgqueue_worker drop column ordered, drop column ordered_slots, "
            "drop column ordered_at, drop column ordered_by",
            state_operations=[
                migrations.AddField("worker", "ordered", models.TextField(blank=True, null=True)),
                migrations.AddField("worker", "ordered_slots", models.IntegerField(blank=True, null=True)),
                migrations.AddField("worker", "ordered_at", models.DateTimeField(blank=True, null=True)),
                migrations.AddField("worker", "ordered_by", models.TextField(blank=True, null=True)),
            ],
        ),
        migrations.RunSQL(IDS_OF_REPORTS.format(kind="by default"), reverse_sql=IDS_OF_REPORTS.format(kind="always")),
        migrations.RunSQL(IDENTITY_OF_DAYS.format("full"), reverse_sql=IDENTITY_OF_DAYS.format("default")),
        # The roll-up: figures of the ended attempts by queue and task.
        migrations.RunSQL(
            sql_files.load("pgqueue_rollup", release="0.2.0"),
            reverse_sql="drop table pgqueue_rollup_position; drop table pgqueue_rollup;",
            state_operations=[ROLLUP],
        ),
        ReplaceFunction("pgqueue_histogram_sum", since="0.1.0"),
        ReplaceFunction("pgqueue_rollup_add", since="0.1.0"),
        ReplaceFunction("pgqueue_rollup_prune", since="0.1.0"),
        ReplaceFunction("pgqueue_attempt_fingerprint", since="0.1.0"),
        ReplaceFunction("pgqueue_message_cancel", since="0.1.0"),
        ReplaceFunction("pgqueue_child_cancel", since="0.1.0"),
        ReplaceFunction("pgqueue_event_arrive", since="0.1.0"),
        ReplaceFunction("pgqueue_child_keep", since="0.1.0"),
        ReplaceFunction("pgqueue_name_require", since="0.1.0"),
        ReplaceFunction("pgqueue_step_refuse", since="0.1.0"),
        ReplaceFunction("pgqueue_step_record", since="0.1.0"),
        ReplaceFunction("pgqueue_step_record_many", since="0.1.0"),
        ReplaceFunction("pgqueue_step_load", since="0.1.0"),
        ReplaceFunction("pgqueue_step_result", since="0.1.0"),
        ReplaceFunction("pgqueue_step_partition", since="0.1.0"),
        ReplaceFunction("pgqueue_step_maintain", since="0.1.0"),
        ReplaceFunction("pgqueue_message_suspend", since="0.1.0"),
        ReplaceFunction("pgqueue_event_put", since="0.1.0"),
        ReplaceFunction("pgqueue_event_emit", since="0.1.0"),
        ReplaceFunction("pgqueue_approval_decide", since="0.1.0"),
        ReplaceFunction("pgqueue_child_add", since="0.1.0"),
        ReplaceFunction("pgqueue_child_outcomes", since="0.1.0"),
        ReplaceFunction("pgqueue_budget_spend", since="0.1.0"),
        ReplaceFunction("pgqueue_step_enqueue", since="0.1.0"),
        ReplaceFunction("pgqueue_worker_order", since="0.1.0"),
        ReplaceFunction("pgqueue_lane_arm", since="0.1.0"),
        ReplaceFunction("pgqueue_message_look", since="0.1.0"),
        ReplaceFunction("pgqueue_attempt_error", since="0.1.0"),
        ReplaceFunction("pgqueue_binding_compile", since="0.1.0"),
        ReplaceFunction("pgqueue_channel_repair", since="0.1.0"),
        ReplaceFunction("pgqueue_advisory_lock", since="0.1.0"),
    ]
