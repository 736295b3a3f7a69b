"""The queue in Django's admin: what waits, what has ended, what comes again, who works, what it came to."""

from django_pgqueue.admin.attempt import AttemptAdmin
from django_pgqueue.admin.binding import BindingAdmin
from django_pgqueue.admin.channel import ChannelAdmin
from django_pgqueue.admin.exchange import ExchangeAdmin
from django_pgqueue.admin.insights import InsightsAdmin
from django_pgqueue.admin.message import MessageAdmin
from django_pgqueue.admin.overview import OverviewAdmin
from django_pgqueue.admin.queue import QueueAdmin
from django_pgqueue.admin.schedule import ScheduleAdmin
from django_pgqueue.admin.worker import WorkerAdmin

__all__ = [
    "AttemptAdmin",
    "BindingAdmin",
    "ChannelAdmin",
    "ExchangeAdmin",
    "InsightsAdmin",
    "MessageAdmin",
    "OverviewAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "WorkerAdmin",
]
