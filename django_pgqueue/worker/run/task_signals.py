"""Sends the signals of an attempt."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async

from django_pgqueue.backend import signals
from django_pgqueue.compat import TaskResultStatus, task_finished
from django_pgqueue.logs import job
from django_pgqueue.tasks.context import Deferral
from django_pgqueue.values.error import Unprintable, stand_in, to_log
from django_pgqueue.worker.run.failure import asked_for, is_a

if TYPE_CHECKING:
    from django.dispatch import Signal

    from django_pgqueue.values.error import Error
    from django_pgqueue.worker.run.execution import Execution
    from django_pgqueue.worker.run.outcome import Outcome


def send_delayed(execution: Execution, exception: BaseException) -> None:
    """Sends the signal of a job that should have gone on, and did not: its recorded end is final."""
    execution.finish(TaskResultStatus.FAILED)
    with job(execution.message):
        if is_a(asked_for(exception), Deferral):
            send(execution, task_finished)
            return
        try:
            raise to_log(exception)  # noqa: TRY301 -- for sys.exc_info(), as it was when the attempt ended
        except BaseException:  # noqa: BLE001
            send(execution, task_finished)


def send(execution: Execution, signal: Signal, shown: Unprintable | None = None) -> None:
    """``shown``: what receivers find in ``sys.exc_info()`` instead of the exception of the task."""
    if shown is not None:
        try:
            raise shown
        except Unprintable:
            shown.__context__ = None  # which cannot be printed either
            send(execution, signal)
    elif signals.has_receivers(signal):
        signals.send(signal, execution.result, backend=execution.backend)
        execution.clean_up_after_receivers(signal)
    elif signals.is_logged(logging.ERROR if _has_failed(execution) else logging.INFO):
        signals.send(signal, execution.result, backend=execution.backend)


def _has_failed(execution: Execution) -> bool:
    return execution.result_or_none is not None and execution.result_or_none.status == TaskResultStatus.FAILED


async def asend(execution: Execution, signal: Signal, shown: Unprintable | None = None) -> None:
    """Sends a signal from a coroutine.  A receiver that is no coroutine may use the ORM, which refuses to work in an
    event loop: it runs in the thread, and with the connection, of the database work of all async tasks.
    """
    if signals.has_receivers(signal):
        await sync_to_async(send)(execution, signal, shown)
    else:
        send(execution, signal, shown)


def shown(outcome: Outcome | None) -> Unprintable | None:
    error: Error | None = getattr(outcome, "error", None)
    return None if error is None or error.printable else stand_in(error)
