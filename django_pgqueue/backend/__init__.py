"""The backend of django.tasks."""

from django_pgqueue.backend.bulk import Call, enqueue_many
from django_pgqueue.backend.pgqueue import PgQueueBackend

__all__ = ["Call", "PgQueueBackend", "enqueue_many"]
