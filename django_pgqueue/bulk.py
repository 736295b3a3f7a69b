"""Its names are in ``django_pgqueue.backend``. This path stays through 0.x."""

from django_pgqueue.backend.bulk import Call, enqueue_many

__all__ = ["Call", "enqueue_many"]
