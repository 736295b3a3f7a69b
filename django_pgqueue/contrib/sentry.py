"""Sentry's events in a worker: one for each job that failed, with the job as tags.

    import sentry_sdk
    from django_pgqueue.contrib.sentry import before_send

    sentry_sdk.init(before_send=before_send)

``sentry-sdk`` is no dependency of this package.  See docs/pages/operate/recipes.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint


def before_send(event: Event, hint: Hint) -> Event:
    """Returns the event with the job that it belongs to.  Events of no job are left as they are.

    What fails in the same task with the same class of error is one issue in Sentry, whatever the traceback is.
    """
    # Settings import this module. A logger that exists before Django reads LOGGING would be disabled there.
    from django_pgqueue.logs import job_of  # noqa: PLC0415

    record = hint.get("log_record")
    message = job_of(record)
    if message is None:
        return event
    task = message.task or ""
    event["transaction"] = task
    tags: Any = {"task": task, "queue": message.queue, "attempt": message.attempt, "message_id": message.id}
    event["tags"] = {**(event.get("tags") or {}), **tags}
    facts = getattr(record, "pgqueue", None)
    error_class = None if facts is None else facts.fields.get("error_class")
    if error_class is not None:
        event["fingerprint"] = [task, error_class]
    return event
