"""The ``TaskResult`` of an attempt that runs, and the attempts before it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, InterfaceError, connections

from django_pgqueue.backend import results
from django_pgqueue.values.times import from_microseconds
from django_pgqueue.worker.run.shared_thread import shared_thread

if TYPE_CHECKING:
    from concurrent.futures import Future

    from django_pgqueue.models.tables import Attempt
    from django_pgqueue.worker.run.execution import Execution

logger = logging.getLogger("django_pgqueue.worker")

_elsewhere = ThreadPoolExecutor(1)
"""One thread, and one session: hundreds of async jobs may fail at the same moment, and the server has no session for
each of them."""
_asked: deque[Execution] = deque()
"""The executions that wait for it, and the one that it serves."""


def result_of(execution: Execution) -> Any:
    """Returns the ``TaskResult``, made on its first use: most jobs never use it.  None: the message is not the call of
    a task.
    """
    if execution.result_or_none is None and execution.args is not None:
        execution.result_or_none = new_result(execution, execution.args)
    return execution.result_or_none


def new_result(execution: Execution, args: list[Any]) -> Any:
    return results.running(
        execution.message,
        execution.task,
        call=(args, execution.kwargs),
        backend=execution.backend,
        started_at=from_microseconds(execution.started_us),
        earlier=partial(earlier_attempts, execution),
        errors=execution.errors,
    )


def earlier_attempts(execution: Execution) -> list[Attempt]:
    if execution.earlier is None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            execution.earlier = _look_back(execution)
        else:  # in an event loop Django's ORM refuses to work
            execution.earlier = _look_back_elsewhere(execution).result()
    return execution.earlier


async def alook_back(execution: Execution) -> None:
    """Reads them before they are asked for, in another thread: in its own, the event loop would stand still meanwhile.
    A cancel comes too late: the attempt has ended.
    """
    asked = asyncio.wrap_future(_look_back_elsewhere(execution))
    with shared_thread().waiting(execution):
        while not asked.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([asked])
    execution.earlier = asked.result()


def _look_back(execution: Execution) -> list[Attempt]:
    try:
        return results.earlier_attempts(execution.message, database=execution.backend.settings.database)
    except (DatabaseError, InterfaceError):  # earlier attempts are worth knowing, not worth failing for
        logger.warning("The earlier attempts of message id=%s cannot be read.", execution.message.id, exc_info=True)
        return []


def _look_back_elsewhere(execution: Execution) -> Future[list[Attempt]]:
    _asked.append(execution)
    return _elsewhere.submit(_look_back_and_leave, execution)


def _look_back_and_leave(execution: Execution) -> list[Attempt]:
    try:
        return _look_back(execution)
    finally:
        _asked.popleft()
        if not _asked or connections[execution.backend.settings.database].errors_occurred:
            connections.close_all()
