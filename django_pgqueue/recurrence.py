"""Old path of names that are now in ``django_pgqueue.tasks``.  It stays through 0.x."""

from django_pgqueue.tasks.schedule import cron, every

__all__ = ["cron", "every"]
