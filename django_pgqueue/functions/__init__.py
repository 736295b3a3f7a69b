"""The binding: the only Python that calls the SQL functions.

Every call takes the connection to work on, either one of Django's (then it is part of the caller's transaction) or one
of psycopg's.  Rows come back as dataclasses; JSON comes and goes as text (``content.py`` knows how it must look).
"""

from django_pgqueue.functions.attempt import (
    Floor,
    Received,
    Success,
    message_cancellations,
    message_cancelled,
    message_complete,
    message_defer,
    message_dequeue,
    message_fail,
    message_heartbeat,
    message_progress,
    message_release,
)
from django_pgqueue.functions.clock import now
from django_pgqueue.functions.connection import Connection
from django_pgqueue.functions.creation import (
    Created,
    message_create,
    message_create_after,
    message_create_alike,
    message_create_many,
    message_create_unique,
    message_lock_keys,
)
from django_pgqueue.functions.error import Error, storable
from django_pgqueue.functions.exchange import (
    KnownBinding,
    Published,
    Route,
    binding_declare,
    binding_delete,
    bindings,
    bindings_lock,
    exchange_declare,
    exchange_delete,
    exchange_route,
    exchanges,
    message_publish,
)
from django_pgqueue.functions.history import attempt_enqueue, attempt_maintain
from django_pgqueue.functions.message import (
    message_cancel,
    message_move,
    message_next_at,
    message_prioritise,
    message_request_cancel,
    message_reschedule,
    message_settle,
)
from django_pgqueue.functions.queue import message_queues, queue_pause, queue_resume
from django_pgqueue.functions.schedule import (
    KnownSchedule,
    schedule_declare,
    schedule_fire,
    schedule_pause,
    schedule_resume,
    schedule_run,
    schedules,
)
from django_pgqueue.functions.worker import worker_gone, worker_seen, worker_wake

__all__ = [
    "Connection",
    "Created",
    "Error",
    "Floor",
    "KnownBinding",
    "KnownSchedule",
    "Published",
    "Received",
    "Route",
    "Success",
    "attempt_enqueue",
    "attempt_maintain",
    "binding_declare",
    "binding_delete",
    "bindings",
    "bindings_lock",
    "exchange_declare",
    "exchange_delete",
    "exchange_route",
    "exchanges",
    "message_cancel",
    "message_cancellations",
    "message_cancelled",
    "message_complete",
    "message_create",
    "message_create_after",
    "message_create_alike",
    "message_create_many",
    "message_create_unique",
    "message_defer",
    "message_dequeue",
    "message_fail",
    "message_heartbeat",
    "message_lock_keys",
    "message_move",
    "message_next_at",
    "message_prioritise",
    "message_progress",
    "message_publish",
    "message_queues",
    "message_release",
    "message_request_cancel",
    "message_reschedule",
    "message_settle",
    "now",
    "queue_pause",
    "queue_resume",
    "schedule_declare",
    "schedule_fire",
    "schedule_pause",
    "schedule_resume",
    "schedule_run",
    "schedules",
    "storable",
    "worker_gone",
    "worker_seen",
    "worker_wake",
]
