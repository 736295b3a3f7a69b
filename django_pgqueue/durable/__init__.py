"""Durable tasks: named steps whose results are recorded, and waits that hold nothing."""

from django_pgqueue.durable.approvals import decide
from django_pgqueue.durable.context import DurableContext
from django_pgqueue.durable.decision import Decision
from django_pgqueue.durable.events import aemit, emit
from django_pgqueue.durable.suspension import Suspension

__all__ = ["Decision", "DurableContext", "Suspension", "aemit", "decide", "emit"]
