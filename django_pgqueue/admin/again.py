"""Jobs that were enqueued under the old path of "enqueue again" find it here, through 0.x."""

from django_pgqueue.admin.attempt.reenqueue_task import enqueue_again

__all__ = ["enqueue_again"]
