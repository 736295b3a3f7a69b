"""Makes the queue of the first release: the files that sql/install.sql lists, in its order.

The files make the tables.  MODELS says which models Django has for the tables of each file.
"""

from collections.abc import Iterator, Sequence

import django.db.models.functions.datetime
from django.db import migrations, models
from django.db.migrations.operations.base import Operation

import django_pgqueue.models.fields
from django_pgqueue.functions import sql_files
from django_pgqueue.functions.upgrade import OWN_PATH, Install

RELEASE = "0.1.0"


def operations() -> Iterator[Operation]:
    uninstall = sql_files.load("uninstall", release=RELEASE)
    yield migrations.RunSQL(migrations.RunSQL.noop, reverse_sql=uninstall)  # going back, it takes out everything
    yield run(OWN_PATH)
    for name in sql_files.install_order(RELEASE):
        yield run(sql_files.load(name, release=RELEASE), MODELS.get(name, []))
    # Rows of days are moved, which PostgreSQL refuses without it where a publication is for all tables.
    yield run("alter table pgqueue_attempt_default replica identity full")
    yield run("select pgqueue_attempt_maintain()")
    yield run("alter table pgqueue_attempt_default replica identity default")


def run(sql: str, state: Sequence[Operation] = ()) -> migrations.RunSQL:
    return migrations.RunSQL(sql, reverse_sql=migrations.RunSQL.noop, state_operations=list(state))


MODELS: dict[str, list[Operation]] = {
    "pgqueue_message": [
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
        ),
    ],
    "pgqueue_attempt": [
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
        ),
    ],
    "pgqueue_worker": [
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
        ),
    ],
    "pgqueue_queue": [
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
            bases=("django_pgqueue.queuestate",),
        ),
    ],
    "pgqueue_schedule": [
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
                            ("skip", "skip missed runs"),
                            ("one", "run once for all missed runs"),
                            ("all", "run each missed run"),
                        ],
                        db_default="one",
                    ),
                ),
                ("content", models.JSONField()),
            ],
            options={
                "db_table": "pgqueue_schedule",
            },
        ),
    ],
    "pgqueue_exchange": [
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
                    models.TextField(choices=[("topic", "topic"), ("regex", "regular expression")], db_default="topic"),
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
    "pgqueue_report": [
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
    "pgqueue_channel": [
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
    "pgqueue_ended": [
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
}


class Migration(Install):
    initial = True

    operations = list(operations())
