"""Old path of names that are now in ``django_pgqueue.tasks``.  It stays through 0.x."""

from django_pgqueue.tasks.after import batch

__all__ = ["batch"]
