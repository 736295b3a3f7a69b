"""The signals of django.tasks, sent so that every receiver can hear them and none can do harm."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from django_pgqueue.compat import LOG_RECEIVERS, TASKS_LOGGER, task_finished, task_started

if TYPE_CHECKING:
    from django.dispatch import Signal

    from django_pgqueue.backend import PgQueueBackend
    from django_pgqueue.compat import AnyTaskResult

logger = logging.getLogger("django_pgqueue.worker")
tasks_logger = logging.getLogger(TASKS_LOGGER)

NAMES = {task_started: "task_started", task_finished: "task_finished"}
DJANGO_S_OWN = {id(receiver) for receiver in LOG_RECEIVERS}


def has_receivers(signal: Signal) -> bool:
    """Whether anybody listens besides Django, whose own receivers only log: they may run anywhere, and cost nothing."""
    receivers = signal.receivers
    if len(receivers) == 1:  # the usual case, twice for each job
        return receivers[0][0][0] not in DJANGO_S_OWN
    return any(key[0] not in DJANGO_S_OWN for key, *_ in receivers)


def is_heard(signal: Signal, level: int = logging.INFO) -> bool:
    """Whether it makes a difference to send it: where Django's receivers are alone they only log, if ``level`` is
    wanted.
    """
    return has_receivers(signal) or tasks_logger.isEnabledFor(level)


def send(signal: Signal, result: AnyTaskResult, *, backend: PgQueueBackend) -> None:
    """Tells every receiver.  Errors are logged, where those who look after a worker see them."""
    try:
        for receiver, answer in signal.send_robust(type(backend), task_result=result):
            if isinstance(answer, Exception):
                _log(signal, result, receiver, answer)
    except BaseException as error:  # SystemExit in a receiver is no end of a job, and not of its worker
        if is_ctrl_c(error):
            raise
        _log(signal, result, None, error)


def is_ctrl_c(exception: BaseException) -> bool:
    """Python interrupts the main thread only.  In a slot of a worker it is a task that raises, and fails."""
    return isinstance(exception, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _log(signal: Signal, result: AnyTaskResult, receiver: Any, error: BaseException) -> None:
    logger.error(
        "receiver failed signal=%s receiver=%s id=%s task=%s error=%s: the job goes on without it",
        NAMES[signal],
        getattr(receiver, "__qualname__", receiver),
        result.id,
        result.task.module_path,
        type(error).__qualname__,
        exc_info=error,
    )
