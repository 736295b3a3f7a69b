"""The public names: what the documentation promises, by the module that exports them."""

from __future__ import annotations


def names_by_module(table: str) -> dict[str, list[str]]:
    """Reads lines such as ``module: name name``; a line that begins with blanks goes on with the one before."""
    lines = [line for line in table.replace("\n    ", " ").splitlines() if line and not line.startswith("#")]
    return {module: names.split() for module, _, names in (line.partition(": ") for line in lines)}


PROMISED = names_by_module("""
# The names of most projects, imported when they are used.
django_pgqueue: Call Exchange Exponential Queue Retry batch cron emit enqueue_many every publish subscribe task
# Tasks, and what they may say.
django_pgqueue.tasks: Exponential PgQueueContext PgQueueTask batch cron every task
# Enqueue.
django_pgqueue.backend: Call PgQueueBackend enqueue_many
# Code that was written for Celery.
django_pgqueue.contrib.celery: shared_task
# Events of Sentry.
django_pgqueue.contrib.sentry: before_send
# Durable tasks.
django_pgqueue.durable: Decision DurableContext Suspension aemit decide emit
# Raw messages.
django_pgqueue.queue: Queue ReceivedMessage
# Exchanges.
django_pgqueue.routing: Exchange Published Route apublish declare_binding declare_exchange publish subscribe
django_pgqueue.control: Filter cancel count_edit edit edit_state pause pause_schedule release_channel
    repair_channels resume resume_edit resume_schedule run_from_step run_schedule set_channel stop_edit
django_pgqueue.exceptions: AttemptLost BudgetExceeded ChannelFull ChannelReleased ChildFailed ContentTooLarge
    DependencyFailed DuplicateMessage EventConflict HalfInstalled InvalidContent InvalidEdit InvalidMessage
    InvalidPattern InvalidSchedule InvalidStep OutdatedQueue PgQueueError Retry SlotDied StepNotRepeated
    TaskBeingImported TaskCancelled TaskExpired TaskTimeout UnknownExchange UnknownTask
django_pgqueue.models: Approval Arrival Attempt Binding Budget Channel Child Edit Ended Event Exchange Lane Message
    Overview QueueState ReportError ReportHour ReportQueue Rollup Schedule Step Worker
# What settings, URLs and LOGGING name.
django_pgqueue.logs: JobFilter JsonFormatter
django_pgqueue.metrics.urls: urlpatterns
django_pgqueue.routers: PgQueueRouter
django_pgqueue.stand_ins: DummyBackend ImmediateBackend InlineBackend
django_pgqueue.traces: processing
# The tests of projects.
django_pgqueue.pytest_plugin: pgqueue pgqueue_clock pgqueue_inline
django_pgqueue.testing: WORKER Clock Crash CrashReport aassert_enqueued aassert_not_enqueued
    acrash_at_every_statement adrain assert_enqueued assert_not_enqueued clock crash_at_every_statement drain
    inline
# The tasks API of Django, or of the backport.
django_pgqueue.compat: InvalidTask TaskContext TaskResult TaskResultDoesNotExist TaskResultStatus
    task_backends task_enqueued task_finished task_started
# Old paths, through 0.x.
django_pgqueue.bulk: Call enqueue_many
django_pgqueue.dependencies: batch
django_pgqueue.recurrence: cron every
django_pgqueue.retry: Exponential
""")
SPARK = names_by_module("""
django_pgqueue.spark: pipeline
django_pgqueue.spark.lake: read_lake
django_pgqueue.spark.report: percentiles rollup
django_pgqueue.spark.session: start
django_pgqueue.spark.snapshot: horizon
django_pgqueue.spark.source: PgQueueDataSource read
django_pgqueue.spark.tasks: declared
""")
