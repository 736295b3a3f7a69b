"""Waiting, running and failed messages, workers and throughput: for people, at a bounded cost.

The admin, ``manage.py qstatus`` and other views call this package, so that all of them show the same.
"""

from django_pgqueue.monitoring.overview.limits import bounded
from django_pgqueue.monitoring.overview.overview import Overview, Paused, QueueOverview, taken

__all__ = ["Overview", "Paused", "QueueOverview", "bounded", "taken"]
