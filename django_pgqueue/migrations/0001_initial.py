"""Makes the queue: the files of sql/ in the order of sql/install.sql."""

from collections.abc import Sequence

import django.db.models.functions.datetime
from django.db import migrations, models
from django.db.migrations.operations.base import Operation

import django_pgqueue.models.fields
from django_pgqueue.functions import sql_files

MIGRATION = "0001_initial"


def run(name: str, state: Sequence[Operation] = ()) -> migrations.RunSQL:
    """Runs sql/<name>.sql.  Going back, everything is taken out at once by the first operation."""
    return migrations.RunSQL(
        sql_files.load(name, migration=MIGRATION), reverse_sql=migrations.RunSQL.noop, state_operations=list(state)
    )


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.RunSQL(migrations.RunSQL.noop, reverse_sql=sql_files.load("uninstall", migration=MIGRATION)),
        run(
            "pgqueue_message",
            [
                migrations.CreateModel(
                    name="Message",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("dequeue_at", django_pgqueue.models.fields.EpochField()),
                        ("unlock_at", django_pgqueue.models.fields.EpochField(blank=True, null=True)),
                        ("check_at", django_pgqueue.models.fields.EpochField(blank=True, null=True)),
                        ("awaited_id", models.BigIntegerField(blank=True, null=True)),
                        ("alone_at", django_pgqueue.models.fields.EpochField(blank=True, null=True)),
                        ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                        ("locked_at", models.DateTimeField(blank=True, null=True)),
                        ("cancel_requested_at", models.DateTimeField(blank=True, null=True)),
                        ("attempt", models.IntegerField(db_default=0)),
                        ("max_attempts", models.IntegerField(blank=True, null=True)),
                        ("checks", models.IntegerField(blank=True, null=True)),
                        ("priority", models.SmallIntegerField(db_default=0)),
                        ("lost", models.SmallIntegerField(db_default=0)),
                        ("in_line", models.BooleanField(db_default=True)),
                        ("unique_until_started", models.BooleanField(db_default=False)),
                        ("queue", models.TextField(db_default="default")),
                        ("channel", models.TextField(blank=True, null=True)),
                        ("task", models.TextField(blank=True, null=True)),
                        ("unique_key", models.TextField(blank=True, null=True)),
                        ("worker", models.TextField(blank=True, null=True)),
                        ("after_policy", models.TextField(blank=True, null=True)),
                        ("after_ids", django_pgqueue.models.fields.IdsField(blank=True, null=True)),
                        ("content", models.JSONField()),
                        ("headers", models.JSONField(blank=True, null=True)),
                        ("state", models.JSONField(blank=True, null=True)),
                        ("progress", models.JSONField(blank=True, null=True)),
                        ("last_error", models.TextField(blank=True, null=True)),
                    ],
                    options={
                        "db_table": "pgqueue_message",
                        "permissions": (
                            ("run_message", "Can run messages now and enqueue them again"),
                            ("cancel_message", "Can cancel messages"),
                            ("see_content", "Can see content, headers, state and results"),
                        ),
                    },
                )
            ],
        ),
        run(
            "pgqueue_attempt",
            [
                migrations.CreateModel(
                    name="Attempt",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("message_id", models.BigIntegerField()),
                        ("dequeue_at", django_pgqueue.models.fields.EpochField()),
                        ("transaction_id", models.BigIntegerField()),
                        ("created_at", models.DateTimeField()),
                        ("started_at", models.DateTimeField(blank=True, null=True)),
                        ("finished_at", models.DateTimeField()),
                        ("attempt", models.IntegerField()),
                        ("max_attempts", models.IntegerField(blank=True, null=True)),
                        ("priority", models.SmallIntegerField()),
                        ("final", models.BooleanField()),
                        (
                            "status",
                            models.TextField(
                                choices=[
                                    ("succeeded", "Succeeded"),
                                    ("deferred", "Deferred"),
                                    ("retried", "Retried"),
                                    ("failed", "Failed"),
                                    ("cancelled", "Cancelled"),
                                    ("lost", "Lost"),
                                ]
                            ),
                        ),
                        ("queue", models.TextField()),
                        ("channel", models.TextField(blank=True, null=True)),
                        ("task", models.TextField(blank=True, null=True)),
                        ("unique_key", models.TextField(blank=True, null=True)),
                        ("worker", models.TextField(blank=True, null=True)),
                        ("error_class", models.TextField(blank=True, null=True)),
                        ("error_message", models.TextField(blank=True, null=True)),
                        ("traceback", models.TextField(blank=True, null=True)),
                        ("result", models.JSONField(blank=True, null=True)),
                        ("content", models.JSONField(blank=True, null=True)),
                        ("headers", models.JSONField(blank=True, null=True)),
                    ],
                    options={
                        "verbose_name": "finished attempt",
                        "db_table": "pgqueue_attempt",
                    },
                )
            ],
        ),
        run(
            "pgqueue_worker",
            [
                migrations.CreateModel(
                    name="Worker",
                    fields=[
                        ("id", models.TextField(primary_key=True, serialize=False)),
                        ("asleep_until", django_pgqueue.models.fields.EpochField(blank=True, null=True)),
                        ("started_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                        ("seen_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                        ("pid", models.IntegerField()),
                        ("slots", models.IntegerField()),
                        ("tasks", models.BooleanField(db_default=True)),
                        ("has_room", models.BooleanField(db_default=False)),
                        ("hostname", models.TextField()),
                        ("problem", models.TextField(blank=True, null=True)),
                        ("queues", django_pgqueue.models.fields.NamesField(blank=True, null=True)),
                        ("exclude_queues", django_pgqueue.models.fields.NamesField(blank=True)),
                    ],
                    options={
                        "db_table": "pgqueue_worker",
                    },
                )
            ],
        ),
        run(
            "pgqueue_queue",
            [
                migrations.CreateModel(
                    name="QueueState",
                    fields=[
                        ("name", models.TextField(primary_key=True, serialize=False)),
                        ("paused_at", models.DateTimeField(blank=True, null=True)),
                        ("paused_by", models.TextField(blank=True, null=True)),
                    ],
                    options={
                        "verbose_name": "queue",
                        "db_table": "pgqueue_queue",
                    },
                )
            ],
        ),
        run(
            "pgqueue_schedule",
            [
                migrations.CreateModel(
                    name="Schedule",
                    fields=[
                        ("name", models.TextField(primary_key=True, serialize=False)),
                        ("next_at", django_pgqueue.models.fields.EpochField()),
                        ("interval_ms", models.BigIntegerField(blank=True, null=True)),
                        ("paused_at", models.DateTimeField(blank=True, null=True)),
                        ("max_attempts", models.IntegerField(blank=True, null=True)),
                        ("priority", models.SmallIntegerField(db_default=0)),
                        ("declared", models.BooleanField(db_default=False)),
                        ("task", models.TextField()),
                        ("queue", models.TextField(db_default="default")),
                        ("cron", models.TextField(blank=True, null=True)),
                        ("timezone", models.TextField(db_default="UTC")),
                        (
                            "catch_up",
                            models.TextField(
                                choices=[
                                    ("skip", "skip what was missed"),
                                    ("one", "run once for what was missed"),
                                    ("all", "run everything that was missed"),
                                ],
                                db_default="one",
                            ),
                        ),
                        ("content", models.JSONField()),
                    ],
                    options={
                        "db_table": "pgqueue_schedule",
                    },
                )
            ],
        ),
        run("pgqueue_ledger"),
        run(
            "pgqueue_exchange",
            [
                migrations.CreateModel(
                    name="Exchange",
                    fields=[
                        ("name", models.TextField(primary_key=True, serialize=False)),
                        ("declared", models.BooleanField(db_default=False)),
                    ],
                    options={
                        "db_table": "pgqueue_exchange",
                    },
                ),
                migrations.CreateModel(
                    name="Binding",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("max_attempts", models.IntegerField(blank=True, null=True)),
                        ("priority", models.SmallIntegerField(db_default=0)),
                        ("declared", models.BooleanField(db_default=False)),
                        ("exchange", models.TextField()),
                        (
                            "kind",
                            models.TextField(
                                choices=[("topic", "topic"), ("regex", "regular expression")], db_default="topic"
                            ),
                        ),
                        ("pattern", models.TextField(blank=True)),
                        ("queue", models.TextField()),
                        ("task", models.TextField(blank=True, null=True)),
                        ("likeness", models.TextField(editable=False)),
                        ("regex", models.TextField(editable=False, null=True)),
                    ],
                    options={
                        "db_table": "pgqueue_binding",
                    },
                ),
            ],
        ),
        run(
            "pgqueue_report",
            [
                migrations.CreateModel(
                    name="ReportHour",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("hour", models.DateTimeField()),
                        ("queue", models.TextField()),
                        ("task", models.TextField(blank=True, null=True)),
                        ("channel", models.TextField(blank=True, null=True)),
                        ("enqueued", models.BigIntegerField()),
                        ("succeeded", models.BigIntegerField()),
                        ("deferred", models.BigIntegerField()),
                        ("retried", models.BigIntegerField()),
                        ("failed", models.BigIntegerField()),
                        ("cancelled", models.BigIntegerField()),
                        ("lost", models.BigIntegerField()),
                        ("messages", models.BigIntegerField()),
                        ("message_attempts", models.BigIntegerField()),
                        ("sla_misses", models.BigIntegerField(blank=True, null=True)),
                        ("wait_ms", models.FloatField()),
                        ("run_ms", models.FloatField()),
                        ("wait_histogram", models.JSONField()),
                        ("run_histogram", models.JSONField()),
                    ],
                    options={
                        "verbose_name": "insight",
                        "db_table": "pgqueue_report_hour",
                    },
                ),
                migrations.CreateModel(
                    name="ReportQueue",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("hour", models.DateTimeField()),
                        ("queue", models.TextField()),
                        ("depth", models.BigIntegerField()),
                        ("depth_max", models.BigIntegerField()),
                        ("running", models.FloatField()),
                        ("running_max", models.BigIntegerField()),
                        ("slots", models.BigIntegerField()),
                    ],
                    options={
                        "db_table": "pgqueue_report_queue",
                    },
                ),
                migrations.CreateModel(
                    name="ReportError",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("hour", models.DateTimeField()),
                        ("queue", models.TextField()),
                        ("task", models.TextField(blank=True, null=True)),
                        ("error_class", models.TextField()),
                        ("attempts", models.BigIntegerField()),
                        ("example", models.TextField(blank=True, null=True)),
                    ],
                    options={
                        "db_table": "pgqueue_report_error",
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name="Overview",
            fields=[],
            options={
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("pgqueue.queuestate",),
        ),
        run(
            "pgqueue_channel",
            [
                migrations.CreateModel(
                    name="Channel",
                    fields=[
                        ("name", models.TextField(primary_key=True, serialize=False)),
                        ("release_at", django_pgqueue.models.fields.EpochField(blank=True, null=True)),
                        ("set_at", models.DateTimeField(blank=True, null=True)),
                        ("released_at", models.DateTimeField(blank=True, null=True)),
                        ("running", models.IntegerField(db_default=0)),
                        ("max_concurrency", models.IntegerField(blank=True, null=True)),
                        ("max_size", models.IntegerField(blank=True, null=True)),
                        ("release_interval_ms", models.IntegerField(blank=True, null=True)),
                    ],
                    options={
                        "db_table": "pgqueue_channel",
                    },
                ),
                migrations.CreateModel(
                    name="Lane",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "channel",
                                "queue",
                                "raw",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("channel", models.TextField()),
                        ("queue", models.TextField()),
                        ("raw", models.BooleanField()),
                        ("parked", models.BooleanField(db_default=False)),
                        ("next_at", django_pgqueue.models.fields.EpochField(blank=True, null=True)),
                        ("turned_at", models.DateTimeField(blank=True, null=True)),
                    ],
                    options={
                        "db_table": "pgqueue_lane",
                    },
                ),
                migrations.CreateModel(
                    name="Arrival",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "channel",
                                "queue",
                                "raw",
                                "id",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("id", models.BigIntegerField()),
                        ("dequeue_at", django_pgqueue.models.fields.EpochField(blank=True, null=True)),
                        ("ended", models.IntegerField(db_default=0)),
                        ("raw", models.BooleanField()),
                        ("channel", models.TextField()),
                        ("queue", models.TextField()),
                    ],
                    options={
                        "db_table": "pgqueue_arrival",
                    },
                ),
            ],
        ),
        run(
            "pgqueue_ended",
            [
                migrations.CreateModel(
                    name="Ended",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "look_at", "id", blank=True, editable=False, primary_key=True, serialize=False
                            ),
                        ),
                        ("id", models.BigIntegerField()),
                        ("message_id", models.BigIntegerField()),
                        ("look_at", django_pgqueue.models.fields.EpochField()),
                    ],
                    options={
                        "db_table": "pgqueue_ended",
                    },
                ),
            ],
        ),
        run("pgqueue_to_epoch"),
        run("pgqueue_from_epoch"),
        run("pgqueue_clock"),
        run("pgqueue_now"),
        run("pgqueue_advisory_lock"),
        run("pgqueue_session_worker"),
        run("pgqueue_worker_wake"),
        run("pgqueue_worker_seen"),
        run("pgqueue_worker_gone"),
        run("pgqueue_attempt_error"),
        run("pgqueue_attempt_append"),
        run("pgqueue_attempt_partition"),
        run("pgqueue_attempt_maintain"),
        run("pgqueue_attempt_fingerprint"),
        run("pgqueue_attempt_drop"),
        run("pgqueue_message_lane"),
        run("pgqueue_channel_room"),
        run("pgqueue_channel_prune"),
        run("pgqueue_lane_arm"),
        run("pgqueue_lane_dequeue"),
        run("pgqueue_lane_dequeue_apart"),
        run("pgqueue_channel_set"),
        run("pgqueue_channel_release"),
        run("pgqueue_channel_repair"),
        run("pgqueue_message_create"),
        run("pgqueue_message_create_unique"),
        run("pgqueue_message_create_item"),
        run("pgqueue_message_create_after"),
        run("pgqueue_message_lock_keys"),
        run("pgqueue_message_create_many"),
        run("pgqueue_message_levels"),
        run("pgqueue_message_queues"),
        run("pgqueue_message_next_at"),
        run("pgqueue_message_lose"),
        run("pgqueue_message_expire"),
        run("pgqueue_message_ended"),
        run("pgqueue_message_look"),
        run("pgqueue_message_settle"),
        run("pgqueue_message_await_turn"),
        run("pgqueue_message_dequeue"),
        run("pgqueue_message_heartbeat"),
        run("pgqueue_message_keep"),
        run("pgqueue_message_release"),
        run("pgqueue_worker_died"),
        run("pgqueue_quarantine_waits"),
        run("pgqueue_quarantine_dequeue"),
        run("pgqueue_message_progress"),
        run("pgqueue_message_complete"),
        run("pgqueue_message_defer"),
        run("pgqueue_message_fail"),
        run("pgqueue_message_cancel"),
        run("pgqueue_message_request_cancel"),
        run("pgqueue_message_cancellations"),
        run("pgqueue_queue_pause"),
        run("pgqueue_queue_resume"),
        run("pgqueue_message_reschedule"),
        run("pgqueue_attempt_enqueue"),
        run("pgqueue_schedule_declare"),
        run("pgqueue_schedule_fire"),
        run("pgqueue_schedule_prune"),
        run("pgqueue_staged_enqueue"),
        run("pgqueue_staged_discard"),
        run("pgqueue_exchange_declare"),
        run("pgqueue_exchange_delete"),
        run("pgqueue_exchange_route"),
        run("pgqueue_binding_compile"),
        run("pgqueue_binding_declare"),
        run("pgqueue_binding_delete"),
        run("pgqueue_message_publish"),
        migrations.RunSQL("select pgqueue_attempt_maintain()", reverse_sql=migrations.RunSQL.noop),
    ]
