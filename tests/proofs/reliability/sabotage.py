"""Breaks a promise on purpose: the storm must notice.  Nothing of this is in the product."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django_pgqueue.functions import sql_files

if TYPE_CHECKING:
    import psycopg

KINDS = ("fence", "second-look", "retry-floor", "slot", "step-fence", "event-look", "children")

FORGETFUL_ATTEMPTS = 3

IN_SQL = {
    # An attempt that was lost may complete.
    "fence": (
        "pgqueue_message_complete",
        "          and m.attempt = g.attempt\n          and m.worker = p_worker\n",
        "",
    ),
    # A retry goes back to its old place, behind which the others have gone on, instead of to the end of its wait.
    "retry-floor": (
        "pgqueue_message_defer",
        "dequeue_at = coalesce(p_dequeue_at, v_now), in_line = coalesce(p_dequeue_at, v_now) <= v_now,",
        "dequeue_at = m.dequeue_at, in_line = m.dequeue_at <= v_now,",
    ),
    # A time of a schedule that was used is used again when the schedule comes by once more.
    "slot": ("pgqueue_schedule_fire", "            continue when not found;\n", ""),
    # Whoever has lost a message records steps of it.
    "step-fence": (
        "pgqueue_step_record",
        "where m.id = p_id and m.attempt = p_attempt and m.worker = coalesce(p_worker, pgqueue_session_worker())",
        "where m.id = p_id",
    ),
    # The same, where steps of several jobs are recorded at once.
    "steps-fence": (
        "pgqueue_step_record_many",
        "on h.id = a.id and h.attempt = a.attempt and h.worker = a.worker",
        "on h.id = a.id",
    ),
    # Nobody looks once more for an event that was emitted while its waiter was written.
    "event-look": (
        "pgqueue_message_suspend",
        "        insert into pgqueue_ended (message_id, event, look_at) values (0, p_event, v_now);\n",
        "        null;\n",
    ),
}


def alter_sql(connection: psycopg.Connection[object], kind: str) -> None:
    if kind not in IN_SQL:
        return
    name, text, instead = IN_SQL[kind]
    whole = sql_files.current(name)
    if whole.count(text) != 1:
        message = f"{name}.sql has changed: the sabotage {kind!r} does not find its place."
        raise RuntimeError(message)
    connection.execute(whole.replace(text, instead).encode())


def patch_worker(kind: str) -> None:
    if kind == "children":
        forget_children()
    elif kind == "second-look":
        look_late()


def forget_children() -> None:
    """The first attempts enqueue their children anew, whatever is recorded.

    Later ones do not: a parent that waits for new children each time would never end.
    """
    from tests.proofs.reliability import tasks

    if tasks.IS_OLD:  # the old release has no durable tasks
        return
    from django_pgqueue.durable.children import EnqueuedChild
    from django_pgqueue.durable.steps import Steps

    recorded = Steps.enqueue

    def enqueue(self: Steps, task: Any, args: Any, kwargs: Any) -> EnqueuedChild:
        if self.message.attempt > FORGETFUL_ATTEMPTS:
            return recorded(self, task, args, kwargs)
        return EnqueuedChild(self._enqueue(task, args, kwargs))

    Steps.enqueue = enqueue  # type: ignore[method-assign]


def look_late() -> None:
    from django_pgqueue.consumer.polling import POLL_SECONDS, Polling

    def fell_asleep(self: Polling) -> None:
        self.asleep, self.wants_to_sleep = True, False
        self.next_look = time.monotonic() + POLL_SECONDS  # and not at once

    Polling.fell_asleep = fell_asleep  # type: ignore[method-assign]
