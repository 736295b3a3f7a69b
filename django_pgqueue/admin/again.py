"""The old path of the task "enqueue again", for jobs that were enqueued under it; it stays through 0.x."""

from django_pgqueue.admin.attempt.reenqueue_task import enqueue_again

__all__ = ["enqueue_again"]
