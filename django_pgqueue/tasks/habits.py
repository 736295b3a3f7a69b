"""Names that other queues give to tasks, options and results: each is answered with the name that it has here."""

from __future__ import annotations

ATTRIBUTES = {
    "delay": "{task}.enqueue(…)",
    "delay_on_commit": "{task}.enqueue(…): it commits with your transaction",
    "apply_async": "{task}.using(queue_name=…, priority=…, run_after=timedelta(…)).enqueue(…)",
    "apply_async_on_commit": "{task}.using(run_after=timedelta(…)).enqueue(…): it commits with your transaction",
    "apply": "{task}.call(…), which runs the function here",
    "call_local": "{task}.call(…), which runs the function here",
    "run": "{task}.call(…), which runs the function here",
    "send": "{task}.enqueue(…)",
    "send_with_options": "{task}.using(queue_name=…, run_after=timedelta(…)).enqueue(…)",
    "defer": "{task}.enqueue(…)",
    "defer_async": "await {task}.aenqueue(…)",
    "configure": "{task}.using(queue_name=…, priority=…, run_after=…)",
    "s": "{task}.using(after=[…]).enqueue(…) or batch(…, results=True), for what runs after other messages",
    "si": "{task}.using(after=[…]).enqueue(…) or batch(…, results=True), for what runs after other messages",
    "signature": "{task}.using(after=[…]).enqueue(…) or batch(…, results=True), for what runs after other messages",
    "retry": "raise Retry(…) of django_pgqueue.exceptions, or max_attempts=… in @task",
    "map": "enqueue_many({task}, […]) of django_pgqueue.backend",
    "starmap": "enqueue_many({task}, […]) of django_pgqueue.backend",
    "chunks": "enqueue_many({task}, […]) of django_pgqueue.backend",
    "AsyncResult": "{task}.get_result(id)",
    "kiq": "await {task}.aenqueue(…)",
    "revoke": "cancel(result), of django_pgqueue.control",
}
"""What a task of Celery, Dramatiq, Procrastinate or huey has, and what one writes instead."""

CONTEXT_ATTRIBUTES = {
    "request": "Write context.task_result, or context.attempt",
    "id": "Write context.task_result.id",
    "job_id": "Write context.task_result.id",
    "retry": "Write raise Retry(…) of django_pgqueue.exceptions, or max_attempts=… in @task",
    "update_state": "Write context.progress(fraction, text)",
    "is_aborted": "Write context.cancelled, or context.raise_if_cancelled()",
    "should_abort": "Write context.cancelled, or context.raise_if_cancelled()",
}
"""What a bound task of Celery, or a job of Procrastinate, asks its context for, and what to do instead."""

RESULT_ATTRIBUTES = {
    "get": "Write result.refresh() until result.is_finished, then result.return_value; batch() waits for several",
    "wait": "Write result.refresh() until result.is_finished, then result.return_value; batch() waits for several",
    "ready": "Write result.refresh(), then result.is_finished",
    "successful": "Write result.status == TaskResultStatus.SUCCESSFUL",
    "failed": "Write result.status == TaskResultStatus.FAILED",
    "state": "Write result.status, whose values have other names: TaskResultStatus",
    "get_status": "Write result.status, whose values have other names: TaskResultStatus",
    "result": "Write result.return_value",
    "info": "Write result.return_value, or result.errors",
    "date_done": "Write result.finished_at",
    "traceback": "Write result.errors[-1].traceback",
    "revoke": "Write cancel(result), of django_pgqueue.control",
    "cancel": "Write cancel(result), of django_pgqueue.control",
    "forget": "Leave it out: the history is dropped after HISTORY_DAYS",
    "task_id": "Write result.id",
}
"""What a result of Celery, RQ or huey has, and what to do instead."""

BATCH_ATTRIBUTES = {
    "get": "Write jobs.wait(timeout=…), which returns the results",
    "join": "Write jobs.wait(timeout=…), which returns the results",
    "ready": "Write jobs.done == jobs.total",
    "completed_count": "Write jobs.done",
    "children": "Write jobs.results",
    "revoke": "Write cancel(result), of django_pgqueue.control, for each of jobs.results",
}
"""What the result of a group of Celery has, and what to do instead."""

CALL = "{task}.enqueue(…), which a worker runs, or {task}.call(…), which runs the function here"
"""What one writes instead of calling a task."""

OPTIONS = {
    "acks_late": "leave it out, a message is acknowledged when its attempt has ended",
    "autoretry_for": "max_attempts=… and retry_on=(…)",
    "bind": "takes_context=True, and the function's first parameter is the context",
    "countdown": "using(run_after=timedelta(…))",
    "default_retry_delay": "backoff=lambda exception, result: seconds",
    "delay": "using(run_after=timedelta(…))",
    "eta": "using(run_after=…)",
    "ignore_result": "leave it out, the result is a row in the history",
    "lock": "channel=…, whose max_concurrency is 1",
    "max_retries": "max_attempts=…, which counts the first attempt, too",
    "name": "leave it out, the name of a task is its dotted path",
    "pass_context": "takes_context=True",
    "queue": "queue_name=…",
    "queueing_lock": "unique_key=…",
    "rate_limit": "channel=…, whose limits control.set_channel sets",
    "retry": "max_attempts=… and backoff=…",
    "retries": "max_attempts=…, which counts the first attempt, too",
    "retry_backoff": "backoff=Exponential(…)",
    "retry_delay": "backoff=lambda exception, result: seconds",
    "soft_time_limit": "timeout=…",
    "throws": "no_retry_on=(…)",
    "time_limit": "timeout=…",
}
"""What decorators of other queues take, and what ``@task`` has for it."""

OF_ONE_CALL = {
    "countdown": "run_after=timedelta(…)",
    "delay": "run_after=timedelta(…)",
    "eta": "run_after=…",
    "expires": "expires=…",
    "priority": "priority=…",
    "queue": "queue_name=…",
    "queue_name": "queue_name=…",
    "run_after": "run_after=…",
}
"""What people pass to ``enqueue`` with the arguments, and what ``using`` has for it."""


def of_task(name: str, task: str) -> str | None:
    """Returns what to write instead of an attribute that tasks of other queues have; None: none has it.

    >>> of_task("delay", "send_receipt")
    "send_receipt is a task of django.tasks, which has no 'delay'. Write send_receipt.enqueue(…)."
    """
    instead = ATTRIBUTES.get(name)
    return instead and f"{task} is a task of django.tasks, which has no {name!r}. Write {instead.format(task=task)}."


def of_context(name: str) -> str | None:
    """Returns what to do instead of an attribute that contexts of other queues have; None: none has it.

    >>> of_context("job_id")
    "The context of a task has no 'job_id'. Write context.task_result.id."
    """
    instead = CONTEXT_ATTRIBUTES.get(name)
    return instead and f"The context of a task has no {name!r}. {instead}."


def of_result(name: str) -> str | None:
    """Returns what to do instead of an attribute that results of other queues have; None: none has it.

    >>> of_result("revoke")
    "A result of django.tasks has no 'revoke'. Write cancel(result), of django_pgqueue.control."
    """
    instead = RESULT_ATTRIBUTES.get(name)
    return instead and f"A result of django.tasks has no {name!r}. {instead}."


def of_batch(name: str) -> str | None:
    """Returns what to do instead of an attribute that results of groups have; None: none has it.

    >>> of_batch("completed_count")
    "A batch has no 'completed_count'. Write jobs.done."
    """
    instead = BATCH_ATTRIBUTES.get(name)
    return instead and f"A batch has no {name!r}. {instead}."


def of_one_call(name: str, task: str) -> str | None:
    """Returns how one call gets an option that is no argument of the task; None: it is no option.

    >>> of_one_call("countdown", "send_receipt")
    'Write send_receipt.using(run_after=timedelta(…)).enqueue(…).'
    """
    instead = OF_ONE_CALL.get(name)
    return instead and f"Write {task}.using({instead}).enqueue(…)."


def missing(owner: object, name: str, instead: str | None) -> AttributeError:
    """Returns the error for an attribute that an object lacks, in Python's words if there is nothing to do instead."""
    return AttributeError(instead or f"{type(owner).__name__!r} object has no attribute {name!r}", name=name, obj=owner)


def option(name: str) -> str | None:
    """Returns what to write instead of an option that decorators of other queues have; None: none has it.

    >>> option("bind")
    "takes_context=True, and the function's first parameter is the context"
    """
    return OPTIONS.get(name)
