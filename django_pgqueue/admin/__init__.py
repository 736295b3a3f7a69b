"""The queue in Django's admin: what waits, what has ended, what comes again, who works."""

from django_pgqueue.admin.attempt import AttemptAdmin
from django_pgqueue.admin.message import MessageAdmin
from django_pgqueue.admin.queue import QueueAdmin
from django_pgqueue.admin.schedule import ScheduleAdmin
from django_pgqueue.admin.worker import WorkerAdmin

__all__ = ["AttemptAdmin", "MessageAdmin", "QueueAdmin", "ScheduleAdmin", "WorkerAdmin"]
