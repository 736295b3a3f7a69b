"""The queue in Django's admin: what waits, what has ended, who works."""

from django_pgqueue.admin.attempt import AttemptAdmin
from django_pgqueue.admin.message import MessageAdmin
from django_pgqueue.admin.worker import WorkerAdmin

__all__ = ["AttemptAdmin", "MessageAdmin", "WorkerAdmin"]
