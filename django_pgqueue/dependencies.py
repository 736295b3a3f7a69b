"""Its names are in ``django_pgqueue.tasks``. This path stays through 0.x."""

from django_pgqueue.tasks.after import batch

__all__ = ["batch"]
