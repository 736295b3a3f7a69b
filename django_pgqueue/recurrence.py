"""Its names are in ``django_pgqueue.tasks``. This path stays through 0.x."""

from django_pgqueue.tasks.schedule import cron, every

__all__ = ["cron", "every"]
