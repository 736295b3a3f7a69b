"""What waits, what runs, what failed, who works and how fast: for people, at a bounded cost.

The admin, ``manage.py qstatus`` and whoever else shows it ask here, so that all of them say the same.
"""

from django_pgqueue.monitoring.overview.limits import bounded
from django_pgqueue.monitoring.overview.overview import Overview, Paused, QueueOverview, taken

__all__ = ["Overview", "Paused", "QueueOverview", "bounded", "taken"]
