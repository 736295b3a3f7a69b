"""Declaration of tasks: ``@task`` and its options."""

from django_pgqueue.tasks.after import batch
from django_pgqueue.tasks.context import PgQueueContext
from django_pgqueue.tasks.retry import Exponential
from django_pgqueue.tasks.schedule import cron, every
from django_pgqueue.tasks.task import PgQueueTask, task

__all__ = ["Exponential", "PgQueueContext", "PgQueueTask", "batch", "cron", "every", "task"]
