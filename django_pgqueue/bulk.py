"""Old path of names that are now in ``django_pgqueue.backend``.  It stays through 0.x."""

from django_pgqueue.backend.bulk import Call, enqueue_many

__all__ = ["Call", "enqueue_many"]
