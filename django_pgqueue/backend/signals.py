"""The signals of django.tasks, sent so that every receiver can hear them and none can do harm."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

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
    """Whether anybody listens besides Django, whose own receivers only log: they may run anywhere, and cost nothing."""
    for receiver in signal.receivers:  # noqa: SIM110 -- any() takes three times as long, twice for each job
        if receiver[0][0] not in DJANGO_S_OWN:
            return True
    return False


class _Cache(WeakKeyDictionary[Any, Any]):
    """Who hears whom.  A sender that cannot be referred to weakly, like None, is looked up each time."""

    def get(self, sender: Any, default: Any = None) -> Any:
        try:
            return super().get(sender, default)
        except TypeError:
            return default

    def __setitem__(self, sender: Any, receivers: Any) -> None:
        with suppress(TypeError):
            super().__setitem__(sender, receivers)


def cache_receivers() -> None:
    """Lets the slots of a worker send without a lock.  A signal that was not made with ``use_caching`` has one that
    each ``send`` takes, and slots with short jobs would do nothing but hand it, and the interpreter, to one another.
    """
    for signal in NAMES:
        if not signal.use_caching:
            signal.sender_receivers_cache = _Cache()
            signal.use_caching = True


def is_heard(signal: Signal, level: int = logging.INFO) -> bool:
    """Whether it makes a difference to send it: where Django's receivers are alone they only log, if ``level`` is
    wanted.
    """
    return has_receivers(signal) or is_logged(level)


def is_logged(level: int) -> bool:
    return tasks_logger.isEnabledFor(level)


def send(signal: Signal, result: AnyTaskResult, *, backend: PgQueueBackend) -> None:
    """Tells every receiver.  Errors are logged, where those who look after a worker see them."""
    try:
        for receiver, answer in signal.send_robust(type(backend), task_result=result):
            if issubclass(type(answer), Exception):
                _log(signal, result, receiver, answer)
    except BaseException as error:  # SystemExit in a receiver is no end of a job, and not of its worker
        if is_ctrl_c(error):
            raise
        _log(signal, result, None, error)


def is_ctrl_c(exception: BaseException) -> bool:
    """Python interrupts the main thread only.  In a slot of a worker it is a task that raises, and fails."""
    return issubclass(type(exception), KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _log(signal: Signal, result: AnyTaskResult, receiver: Any, error: BaseException) -> None:
    # The error may be one that cannot be printed, and a handler of the project's LOGGING may raise: so may the receiver
    # that has the job's log.  None of it is the job's affair.
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
