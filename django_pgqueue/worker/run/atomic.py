"""The transaction of an atomic task: the task, its writes, its enqueues and its completion."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, InterfaceError, InternalError, connections, transaction

from django_pgqueue import functions
from django_pgqueue.backend import results
from django_pgqueue.backend.signals import is_ctrl_c
from django_pgqueue.consumer.errors import MAX_RESTARTS, RESTART_SECONDS, first_line, is_conflict
from django_pgqueue.exceptions import AttemptLost, TaskCancelled
from django_pgqueue.worker.run.connect_first import connected, established
from django_pgqueue.worker.run.isolation import sees_one_snapshot
from django_pgqueue.worker.run.outcome import Committed, Outcome

if TYPE_CHECKING:
    from django_pgqueue.worker.run.execution import Execution

logger = logging.getLogger("django_pgqueue.worker")


def run_atomically(execution: Execution) -> Outcome:
    """Runs the task, its writes, its enqueues and its completion in one transaction: all happens once, or nothing."""
    message, restarts = execution.message, 0
    while True:
        try:
            return _run_in_a_transaction(execution)
        except Exception as exception:
            if restarts == MAX_RESTARTS or execution.is_over or not is_conflict(exception):
                raise
            restarts += 1
            logger.warning(
                "restarted id=%s task=%s attempt=%s restarts=%s: PostgreSQL rolled its transaction back: %s",
                message.id, message.task, message.attempt, restarts, first_line(exception),
            )  # fmt: skip
        if execution.reports.is_cancelled(message):
            reason = "A user asked the task to stop, and the worker rolled its transaction back."
            raise TaskCancelled(reason)
        time.sleep(random.uniform(0, RESTART_SECONDS * 2**restarts))  # noqa: S311 -- spreads those that met
        execution.args, execution.kwargs = results.called(message)  # the task may have changed them


def _run_in_a_transaction(execution: Execution) -> Outcome:
    database = execution.backend.settings.database
    connection = connections[database]
    is_completed = is_done = False
    try:
        execution.message.kept = connected(execution, lambda: sees_one_snapshot(established(connection)))
        with transaction.atomic(using=database):
            execution.session = connection.connection
            if execution.message.kept:
                _keep(execution, connection)
            normal, text = execution.returned(execution.call())
            complete(execution, connection, text)
            # A heartbeat would not find it from the commit on, while on_commit() callbacks run, and take it for lost.
            is_completed = execution.message.kept = True
        is_done = True
    except BaseException as exception:
        is_done = is_completed and not is_ctrl_c(exception) and _is_committed(execution)
        if not is_done:
            raise
        what = "An on_commit() callback of message id=%s failed; the message is done."
        is_lost = execution.session.closed and isinstance(exception, DatabaseError | InterfaceError)
        if is_lost:  # the answer to the commit may be what is missing
            what = (
                "Message id=%s is done; its connection was lost at the commit or behind it: on_commit() callbacks may "
                "be missing."
            )
        logger.exception(what, execution.message.id)
    finally:
        execution.message.kept = is_done
    execution.succeed(normal)
    return Committed()


def _keep(execution: Execution, connection: Any) -> None:
    if not functions.message_keep(connection, execution.message):
        raise _lost(execution)


def _is_committed(execution: Execution) -> bool:
    database = execution.backend.settings.database
    try:
        if execution.session.closed:  # Django opens another one
            connections[database].close()
        return results.has_succeeded(execution.message, database=database)
    except (DatabaseError, InterfaceError):
        return False


def complete(execution: Execution, connection: Any, text: str | None) -> None:
    try:
        execution.finished_us = execution.clock()
        end = functions.Success(
            execution.message.id, execution.message.attempt, text, execution.started_us, execution.finished_us
        )
        ours = functions.message_complete(connection, [end], worker=execution.message.worker)
    except (InternalError, transaction.TransactionManagementError) as error:
        if isinstance(error, InternalError) and execution.session.closed:
            raise
        message = (
            f"{execution.message.task} is atomic, and its transaction can only be rolled back: the task went on after "
            "a database error, or called set_rollback(). Put statements that may fail into a savepoint: with "
            "transaction.atomic(): ..."
        )
        raise transaction.TransactionManagementError(message) from error
    if not ours:
        raise _lost(execution)


def _lost(execution: Execution) -> AttemptLost:
    execution.is_lost = True
    return AttemptLost(
        f"Message {execution.message.id}: attempt {execution.message.attempt} was lost, and the worker rolls it back."
    )
