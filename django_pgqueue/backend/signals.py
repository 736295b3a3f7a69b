"""Signals of django.tasks: every receiver is called, and no receiver can harm the job."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django_pgqueue.compat import LOG_RECEIVERS, TASKS_LOGGER, task_finished, task_started
from django_pgqueue.values.error import to_log

if TYPE_CHECKING:
    from django.dispatch import Signal

    from django_pgqueue.backend.pgqueue import PgQueueBackend
    from django_pgqueue.compat import AnyTaskResult

logger = logging.getLogger("django_pgqueue.worker")
tasks_logger = logging.getLogger(TASKS_LOGGER)

NAMES = {task_started: "task_started", task_finished: "task_finished"}
DJANGO_S_OWN = {id(receiver) for receiver in LOG_RECEIVERS}


def has_receivers(signal: Signal) -> bool:
    """Whether a signal has receivers besides Django's own, which only log: these may run anywhere and cost nothing."""
    for receiver in signal.receivers:  # noqa: SIM110 -- any() takes three times as long, twice for each job
        if receiver[0][0] not in DJANGO_S_OWN:
            return True
    return False


def is_heard(signal: Signal, level: int = logging.INFO) -> bool:
    """Whether sending the signal has an effect: Django's own receivers only log, and only if ``level`` is enabled."""
    return tasks_logger.isEnabledFor(level) or has_receivers(signal)


def is_logged(level: int) -> bool:
    return tasks_logger.isEnabledFor(level)


def send(signal: Signal, result: AnyTaskResult, *, backend: PgQueueBackend) -> None:
    """Calls every receiver and logs their errors in the worker's log."""
    try:
        for receiver, answer in signal.send_robust(type(backend), task_result=result):
            if issubclass(type(answer), Exception):
                _log(signal, result, receiver, answer)
    except BaseException as error:  # a SystemExit in a receiver must end neither the job nor its worker
        if is_ctrl_c(error):
            raise
        _log(signal, result, None, error)


def is_ctrl_c(exception: BaseException) -> bool:
    """Whether Ctrl-C raised it: Python interrupts the main thread only.  In a slot, the task raised it, and fails."""
    return issubclass(type(exception), KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _log(signal: Signal, result: AnyTaskResult, receiver: Any, error: BaseException) -> None:
    # Printing the error may raise, and so may a handler of the project's LOGGING, or the receiver that has the job's
    # log.  None of that may fail the job.
    with suppress(BaseException):
        logger.error(
            "receiver failed signal=%s receiver=%s id=%s task=%s error=%s: the job goes on without it",
            NAMES[signal],
            getattr(receiver, "__qualname__", receiver),
            result.id,
            result.task.module_path,
            type(error).__qualname__,
            exc_info=to_log(error),
        )
