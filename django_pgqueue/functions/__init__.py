"""Python side of the SQL functions: the only Python that changes the queue, and it does so through them.

The imports are the list.  Callers say ``functions.message_fail`` and import no modules of this package: these are named
after the nouns of the SQL, such as ``message`` and ``channel``, and in 40 of the 81 files that call a function, such a
name is a variable.

Every function takes the connection to work on: one of Django's (then the call is part of the caller's transaction) or
one of psycopg's.  Rows are returned as dataclasses.  JSON is passed and returned as text, which
``values/content.py`` checks.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

from django_pgqueue.functions.attempt import LAKE_DAYS, attempt_enqueue, attempt_maintain, attempt_overdue
from django_pgqueue.functions.channel import (
    Recount,
    channel_prune,
    channel_release,
    channel_repair,
    channel_set,
    channels_miscounted,
    channels_unseen,
    refusal,
)
from django_pgqueue.functions.clock import now
from django_pgqueue.functions.connection import Connection, may_read, refusal_of
from django_pgqueue.functions.dequeue import (
    DequeueArguments,
    Floor,
    Received,
    Token,
    flush,
    message_dequeue,
    message_dequeue_in_turn,
    quarantine_dequeue,
    running,
)
from django_pgqueue.functions.edit import (
    EditCount,
    EditState,
    edit_ask,
    edit_count,
    edit_resume,
    edit_state,
    edit_step,
    edit_stop,
)
from django_pgqueue.functions.ends import (
    Success,
    completion,
    message_abandon,
    message_cancellations,
    message_cancelled,
    message_complete,
    message_complete_prepared,
    message_defer,
    message_fail,
    message_heartbeat,
    message_keep,
    message_locked,
    message_progress,
    message_release,
    message_release_others,
)
from django_pgqueue.functions.enqueue import Created, enqueue, enqueue_alike, enqueue_many, message_lock_keys
from django_pgqueue.functions.exchange import (
    KnownBinding,
    Published,
    Route,
    binding_compile,
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
from django_pgqueue.functions.failure_alerts import FailureAlert, failure_alerts
from django_pgqueue.functions.installed import (
    Installed,
    explained,
    hidden_queues,
    installed_queue,
    needed,
    outdated,
    require_queue,
)
from django_pgqueue.functions.lake import LakeRow, lakes
from django_pgqueue.functions.message import (
    Prospect,
    message_cancel,
    message_move,
    message_prioritise,
    message_prospect,
    message_request_cancel,
    message_reschedule,
    message_settle,
    message_settling,
    messages_ended,
    messages_left,
    quarantine_waits,
    transactions_writing,
)
from django_pgqueue.functions.new_message import After, NewMessage, UniqueKey
from django_pgqueue.functions.pins import apart, strayed
from django_pgqueue.functions.queue import Backlog, backlog, message_queues, queue_pause, queue_resume
from django_pgqueue.functions.rollup import rollup_add, rollup_prune
from django_pgqueue.functions.schedule import (
    KnownSchedule,
    schedule_declare,
    schedule_fire,
    schedule_message,
    schedule_pause,
    schedule_prune,
    schedule_resume,
    schedule_undeclare,
    schedules,
    schedules_that_have_fired,
)
from django_pgqueue.functions.steps import (
    ChildOutcome,
    NewStep,
    Spent,
    StepRecord,
    Wait,
    after_outcomes,
    approval_decide,
    approval_permission,
    budget_spend,
    child_add,
    child_outcomes,
    event_emit,
    event_payload,
    message_suspend,
    step_enqueue,
    step_load,
    step_maintain,
    step_record,
    step_record_many,
    step_result,
    step_wakes_at,
)
from django_pgqueue.functions.unknown import (
    Line,
    ParkedCall,
    ParkedLine,
    message_park,
    message_parked,
    message_parked_calls,
    message_unknown_fail,
    message_unpark,
)
from django_pgqueue.functions.worker import (
    MISSED_AFTER_MS,
    Company,
    Deployed,
    OpenTransactions,
    Outlook,
    open_transactions,
    transactions_are_over,
    worker_died,
    worker_expire,
    worker_gone,
    worker_hold,
    worker_lacks,
    worker_order,
    worker_rest,
    worker_seen,
    worker_version,
    worker_wake,
    worker_wake_next,
    worker_wake_resting,
    workers_deployed,
)
from django_pgqueue.values.error import Error
