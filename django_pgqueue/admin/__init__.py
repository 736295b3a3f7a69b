"""The queue in Django's admin: messages, history, settings, workers and dashboards."""

from django_pgqueue.admin.attempt.admin import AttemptAdmin
from django_pgqueue.admin.dashboards.insights import InsightsAdmin
from django_pgqueue.admin.dashboards.overview import OverviewAdmin
from django_pgqueue.admin.edit.admin import EditAdmin
from django_pgqueue.admin.message.admin import MessageAdmin
from django_pgqueue.admin.message.event import EventAdmin
from django_pgqueue.admin.settings.binding import BindingAdmin
from django_pgqueue.admin.settings.channel import ChannelAdmin
from django_pgqueue.admin.settings.exchange import ExchangeAdmin
from django_pgqueue.admin.settings.queue import QueueAdmin
from django_pgqueue.admin.settings.schedule import ScheduleAdmin
from django_pgqueue.admin.settings.worker import WorkerAdmin

__all__ = [
    "AttemptAdmin",
    "BindingAdmin",
    "ChannelAdmin",
    "EditAdmin",
    "EventAdmin",
    "ExchangeAdmin",
    "InsightsAdmin",
    "MessageAdmin",
    "OverviewAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "WorkerAdmin",
]
