"""Django models of the queue's tables.  The migrations make the tables themselves, with the SQL in sql/."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext, gettext_lazy

from django_pgqueue.models.fields import EpochField, IdsField, NamesField
from django_pgqueue.models.words import STATUSES


class Message(models.Model):
    """Message that waits or runs.  Change it through the SQL functions (``functions``), which take the locks."""

    id = models.BigAutoField(primary_key=True)
    dequeue_at = EpochField()
    unlock_at = EpochField(null=True, blank=True)
    check_at = EpochField(null=True, blank=True)
    awaited_id = models.BigIntegerField(null=True, blank=True)
    alone_at = EpochField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    locked_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    attempt = models.IntegerField(db_default=0)
    max_attempts = models.IntegerField(null=True, blank=True)
    checks = models.IntegerField(null=True, blank=True)
    priority = models.SmallIntegerField(db_default=0)
    lost = models.SmallIntegerField(db_default=0)
    in_line = models.BooleanField(db_default=True)
    unique_until_started = models.BooleanField(db_default=False)
    queue = models.TextField(db_default="default")
    channel = models.TextField(null=True, blank=True)  # noqa: DJ001 -- the conditions of the indexes test for null
    task = models.TextField(null=True, blank=True)  # noqa: DJ001
    unique_key = models.TextField(null=True, blank=True)  # noqa: DJ001
    worker = models.TextField(null=True, blank=True)  # noqa: DJ001
    after_policy = models.TextField(null=True, blank=True)  # noqa: DJ001
    after_ids = IdsField(null=True, blank=True)
    content = models.JSONField()
    headers = models.JSONField(null=True, blank=True)
    state = models.JSONField(null=True, blank=True)
    progress = models.JSONField(null=True, blank=True)
    last_error = models.TextField(null=True, blank=True)  # noqa: DJ001
    unknown_since = EpochField(null=True, blank=True)
    parked_at = EpochField(null=True, blank=True)
    max_lost = models.SmallIntegerField(null=True, blank=True)
    version = models.TextField(null=True, blank=True)  # noqa: DJ001
    suspended_attempt = models.IntegerField(null=True, blank=True)
    awaited_event = models.TextField(null=True, blank=True)  # noqa: DJ001

    class Meta:
        db_table = "pgqueue_message"
        required_db_vendor = "postgresql"
        permissions = (
            ("run_message", "Can run messages now and enqueue them again"),
            ("cancel_message", "Can cancel messages"),
            ("see_content", "Can see content, headers, state and results"),
        )

    def __str__(self) -> str:
        return f"{self.pk} {self.task or gettext('raw message')}"


class Attempt(models.Model):
    """Finished attempt: a row of the append-only history."""

    class Status(models.TextChoices):
        SUCCEEDED = "succeeded", gettext_lazy("Succeeded")
        DEFERRED = "deferred", gettext_lazy("Deferred")
        RETRIED = "retried", gettext_lazy("Retried")
        FAILED = "failed", gettext_lazy("Failed")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")
        LOST = "lost", gettext_lazy("Lost")
        SUSPENDED = "suspended", gettext_lazy("Suspended")

    id = models.BigAutoField(primary_key=True)
    message_id = models.BigIntegerField()
    dequeue_at = EpochField()
    transaction_id = models.BigIntegerField()
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField()
    attempt = models.IntegerField()
    max_attempts = models.IntegerField(null=True, blank=True)
    priority = models.SmallIntegerField()
    final = models.BooleanField()
    status = models.TextField(choices=Status.choices)
    queue = models.TextField()
    channel = models.TextField(null=True, blank=True)  # noqa: DJ001
    task = models.TextField(null=True, blank=True)  # noqa: DJ001
    unique_key = models.TextField(null=True, blank=True)  # noqa: DJ001
    worker = models.TextField(null=True, blank=True)  # noqa: DJ001
    error_class = models.TextField(null=True, blank=True)  # noqa: DJ001
    error_message = models.TextField(null=True, blank=True)  # noqa: DJ001
    traceback = models.TextField(null=True, blank=True)  # noqa: DJ001
    result = models.JSONField(null=True, blank=True)
    content = models.JSONField(null=True, blank=True)
    headers = models.JSONField(null=True, blank=True)

    class Meta:
        db_table = "pgqueue_attempt"
        required_db_vendor = "postgresql"
        verbose_name = "finished attempt"

    def __str__(self) -> str:
        words = gettext("message {id}, attempt {number}: {status}")
        return words.format(id=self.message_id, number=self.attempt, status=STATUSES.get(self.status, self.status))


class Worker(models.Model):
    """Worker process that has recorded that it is alive."""

    id = models.TextField(primary_key=True)
    asleep_until = EpochField(null=True, blank=True)
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    pid = models.IntegerField()
    slots = models.IntegerField()
    tasks = models.BooleanField(db_default=True)
    has_room = models.BooleanField(db_default=False)
    hostname = models.TextField()
    problem = models.TextField(null=True, blank=True)  # noqa: DJ001 -- null: there is none
    queues = NamesField(null=True, blank=True)
    exclude_queues = NamesField(blank=True)
    lacks = NamesField(null=True, blank=True)
    refuses = NamesField(null=True, blank=True)
    version = models.TextField(null=True, blank=True)  # noqa: DJ001
    silent_until = EpochField(null=True, blank=True)
    server_started_at = EpochField(null=True, blank=True)
    ordered = models.TextField(null=True, blank=True)  # noqa: DJ001
    ordered_slots = models.IntegerField(null=True, blank=True)
    ordered_at = models.DateTimeField(null=True, blank=True)
    ordered_by = models.TextField(null=True, blank=True)  # noqa: DJ001

    class Meta:
        db_table = "pgqueue_worker"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return self.id


class QueueState(models.Model):
    """State of a queue that a person has set: whether it is paused."""

    name = models.TextField(primary_key=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_by = models.TextField(null=True, blank=True)  # noqa: DJ001

    class Meta:
        db_table = "pgqueue_queue"
        required_db_vendor = "postgresql"
        verbose_name = "queue"

    def __str__(self) -> str:
        return self.name


class Overview(QueueState):
    """Overview in the admin: a page with a permission of its own and without a table."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name = "overview"
        verbose_name_plural = "overview"


class Channel(models.Model):
    """Channel: a named share of the work (a tenant, an API) with limits of its own."""

    name = models.TextField(primary_key=True)
    release_at = EpochField(null=True, blank=True)
    set_at = models.DateTimeField(null=True, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)
    running = models.IntegerField(db_default=0)
    max_concurrency = models.IntegerField(null=True, blank=True)
    max_size = models.IntegerField(null=True, blank=True)
    release_interval_ms = models.IntegerField(null=True, blank=True)

    class Meta:
        db_table = "pgqueue_channel"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return self.name


class Lane(models.Model):
    """Lane: the messages of a channel in one queue, either raw messages or tasks."""

    pk = models.CompositePrimaryKey("channel", "queue", "raw")
    channel = models.TextField()
    queue = models.TextField()
    raw = models.BooleanField()
    parked = models.BooleanField(db_default=False)
    next_at = EpochField(null=True, blank=True)
    turned_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "pgqueue_lane"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.channel} in {self.queue}"


class Arrival(models.Model):
    """Change of a lane that is not yet applied to the row of the lane."""

    pk = models.CompositePrimaryKey("channel", "queue", "raw", "id")
    id = models.BigIntegerField()
    dequeue_at = EpochField(null=True, blank=True)
    ended = models.IntegerField(db_default=0)
    raw = models.BooleanField()
    channel = models.TextField()
    queue = models.TextField()

    class Meta:
        db_table = "pgqueue_arrival"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.channel} in {self.queue}"


class Ended(models.Model):
    """Ended message or emitted event for which others waited, until all of these have been checked."""

    pk = models.CompositePrimaryKey("look_at", "id")
    id = models.BigIntegerField()
    message_id = models.BigIntegerField()
    look_at = EpochField()
    event = models.TextField(null=True)  # noqa: DJ001

    class Meta:
        db_table = "pgqueue_ended"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.event or self.message_id}"


class Step(models.Model):
    """Record of a step of a durable task, or of its wait."""

    pk = models.CompositePrimaryKey("message_id", "name", "recorded_at")
    message_id = models.BigIntegerField()
    recorded_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField()
    until = EpochField(null=True, blank=True)
    attempt = models.IntegerField()
    kind = models.TextField()
    status = models.TextField()
    name = models.TextField()
    error = models.TextField(null=True, blank=True)  # noqa: DJ001
    result = models.JSONField(null=True, blank=True)

    class Meta:
        db_table = "pgqueue_step"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"message {self.message_id}, step {self.name}: {self.status}"


class Budget(models.Model):
    """Budget of a durable task, and what it has spent."""

    pk = models.CompositePrimaryKey("message_id", "name")
    message_id = models.BigIntegerField()
    name = models.TextField()
    spent = models.DecimalField(max_digits=1000, decimal_places=100)

    class Meta:
        db_table = "pgqueue_budget"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"message {self.message_id}, {self.name}: {self.spent}"


class Child(models.Model):
    """Message that a step of a durable task has enqueued, or whose result another message wants."""

    pk = models.CompositePrimaryKey("message_id", "parent_id")
    message_id = models.BigIntegerField()
    parent_id = models.BigIntegerField()
    created_at = models.DateTimeField()
    cancels = models.BooleanField(db_default=True)
    status = models.TextField(null=True, blank=True)  # noqa: DJ001
    error_class = models.TextField(null=True, blank=True)  # noqa: DJ001
    error_message = models.TextField(null=True, blank=True)  # noqa: DJ001
    result = models.JSONField(null=True, blank=True)
    by_after = models.BooleanField(db_default=False)

    class Meta:
        db_table = "pgqueue_child"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"message {self.message_id} of {self.parent_id}"


class Event(models.Model):
    """Event that was emitted."""

    name = models.TextField(primary_key=True)
    emitted_at = models.DateTimeField()
    payload = models.JSONField()

    class Meta:
        db_table = "pgqueue_event"
        required_db_vendor = "postgresql"
        permissions = (("emit_event", "Can emit events"),)

    def __str__(self) -> str:
        return self.name


class Approval(models.Model):
    """Decision of a person for which a durable task waits or has waited."""

    pk = models.CompositePrimaryKey("message_id", "name")
    message_id = models.BigIntegerField()
    asked_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    approved = models.BooleanField(null=True, blank=True)
    name = models.TextField()
    permission = models.TextField(null=True, blank=True)  # noqa: DJ001
    decided_by = models.TextField(null=True, blank=True)  # noqa: DJ001
    comment = models.TextField(null=True, blank=True)  # noqa: DJ001
    details = models.JSONField(null=True, blank=True)

    class Meta:
        db_table = "pgqueue_approval"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"message {self.message_id}, {self.name}"


class Edit(models.Model):
    """Edit: an action for everything that matches a filter, which workers do in steps."""

    id = models.BigAutoField(primary_key=True)
    first_id = models.BigIntegerField()
    last_id = models.BigIntegerField()
    position = models.BigIntegerField()
    done = models.BigIntegerField(db_default=0)
    asked = models.BigIntegerField(db_default=0)
    awaiting = models.BigIntegerField(db_default=0)
    skipped = models.BigIntegerField(db_default=0)
    asked_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    stopped_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    action = models.TextField()
    asked_by = models.TextField()
    stopped_by = models.TextField(null=True, blank=True)  # noqa: DJ001
    error = models.TextField(null=True, blank=True)  # noqa: DJ001
    filter = models.JSONField()
    parameters = models.JSONField()

    class Meta:
        db_table = "pgqueue_edit"
        required_db_vendor = "postgresql"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return gettext("edit {id}: {action}").format(id=self.pk, action=self.action)


class Schedule(models.Model):
    """Schedule: enqueues a task again and again."""

    class CatchUp(models.TextChoices):
        SKIP = "skip", gettext_lazy("skip missed runs")
        ONE = "one", gettext_lazy("run once for all missed runs")
        ALL = "all", gettext_lazy("run each missed run")

    name = models.TextField(primary_key=True)
    next_at = EpochField()
    interval_ms = models.BigIntegerField(null=True, blank=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    max_attempts = models.IntegerField(null=True, blank=True)
    priority = models.SmallIntegerField(db_default=0)
    declared = models.BooleanField(db_default=False)
    task = models.TextField()
    queue = models.TextField(db_default="default")
    cron = models.TextField(null=True, blank=True)  # noqa: DJ001
    timezone = models.TextField(db_default="UTC")
    catch_up = models.TextField(choices=CatchUp.choices, db_default="one")
    content = models.JSONField()

    class Meta:
        db_table = "pgqueue_schedule"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return self.name


class Exchange(models.Model):
    """Exchange: receives published messages."""

    name = models.TextField(primary_key=True)
    declared = models.BooleanField(db_default=False)

    class Meta:
        db_table = "pgqueue_exchange"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return self.name


class Binding(models.Model):
    """Binding: a queue gets the published messages whose routing key matches the pattern."""

    class Kind(models.TextChoices):
        TOPIC = "topic", gettext_lazy("topic")
        REGEX = "regex", gettext_lazy("regular expression")

    id = models.BigAutoField(primary_key=True)
    max_attempts = models.IntegerField(null=True, blank=True)
    priority = models.SmallIntegerField(db_default=0)
    declared = models.BooleanField(db_default=False)
    exchange = models.TextField()  # in the table it is a foreign key that cascades deletes
    kind = models.TextField(choices=Kind.choices, db_default="topic")
    pattern = models.TextField(blank=True)
    queue = models.TextField()
    task = models.TextField(null=True, blank=True)  # noqa: DJ001
    likeness = models.TextField(editable=False)
    regex = models.TextField(null=True, editable=False)  # noqa: DJ001

    class Meta:
        db_table = "pgqueue_binding"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.exchange} {self.pattern!r} → {self.task or self.queue}"


class ReportHour(models.Model):
    """Report on one hour of a queue, a task and a channel.  The pipeline (``spark/``) writes it."""

    id = models.BigAutoField(primary_key=True)
    hour = models.DateTimeField()
    queue = models.TextField()
    task = models.TextField(null=True, blank=True)  # noqa: DJ001
    channel = models.TextField(null=True, blank=True)  # noqa: DJ001
    enqueued = models.BigIntegerField()
    succeeded = models.BigIntegerField()
    deferred = models.BigIntegerField()
    retried = models.BigIntegerField()
    failed = models.BigIntegerField()
    cancelled = models.BigIntegerField()
    lost = models.BigIntegerField()
    messages = models.BigIntegerField()
    message_attempts = models.BigIntegerField()
    sla_misses = models.BigIntegerField(null=True, blank=True)
    wait_ms = models.FloatField()
    run_ms = models.FloatField()
    wait_histogram = models.JSONField()
    run_histogram = models.JSONField()

    class Meta:
        db_table = "pgqueue_report_hour"
        required_db_vendor = "postgresql"
        verbose_name = "insight"

    def __str__(self) -> str:
        return f"{self.hour} {self.queue} {self.task or 'raw messages'}"


class Rollup(models.Model):
    """Figures of five minutes or of an hour of a queue and a task.  ``pgqueue_rollup_add`` writes it."""

    id = models.BigAutoField(primary_key=True)
    starts_at = models.DateTimeField()
    minutes = models.SmallIntegerField()
    queue = models.TextField()
    task = models.TextField(null=True, blank=True)  # noqa: DJ001
    succeeded = models.BigIntegerField()
    deferred = models.BigIntegerField()
    retried = models.BigIntegerField()
    failed = models.BigIntegerField()
    cancelled = models.BigIntegerField()
    lost = models.BigIntegerField()
    messages = models.BigIntegerField()
    message_attempts = models.BigIntegerField()
    wait_ms = models.FloatField()
    run_ms = models.FloatField()
    wait_histogram = models.JSONField()
    run_histogram = models.JSONField()

    class Meta:
        db_table = "pgqueue_rollup"
        required_db_vendor = "postgresql"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.starts_at} {self.queue} {self.task or 'raw messages'}"


class ReportQueue(models.Model):
    """Report on one hour of a queue: how many messages waited, and how many ran."""

    id = models.BigAutoField(primary_key=True)
    hour = models.DateTimeField()
    queue = models.TextField()
    depth = models.BigIntegerField()
    depth_max = models.BigIntegerField()
    running = models.FloatField()
    running_max = models.BigIntegerField()
    slots = models.BigIntegerField()

    class Meta:
        db_table = "pgqueue_report_queue"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.hour} {self.queue}"


class ReportError(models.Model):
    """Report on the errors of one hour."""

    id = models.BigAutoField(primary_key=True)
    hour = models.DateTimeField()
    queue = models.TextField()
    task = models.TextField(null=True, blank=True)  # noqa: DJ001
    error_class = models.TextField()
    attempts = models.BigIntegerField()
    example = models.TextField(null=True, blank=True)  # noqa: DJ001

    class Meta:
        db_table = "pgqueue_report_error"
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.hour} {self.error_class}"
