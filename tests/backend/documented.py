# mypy: disable-error-code="untyped-decorator"
"""Tasks as Django's documentation shows them: nothing of them is ours."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.django_tasks_api import django_task


@django_task
def meaning_of_life() -> int:
    return 42


@django_task()
async def meaning_of_life_async() -> int:
    await asyncio.sleep(0)
    return 42


@django_task(takes_context=True)
def describe_yourself(context: Any, word: str) -> dict[str, Any]:
    result = context.task_result
    return {
        "attempt": context.attempt,
        "attempts": result.attempts,
        "id": result.id,
        "status": result.status,
        "is_finished": result.is_finished,
        "args": result.args,
        "started": result.started_at is not None and result.started_at == result.last_attempted_at,
        "finished": result.finished_at,
        "errors": result.errors,
        "workers": len(result.worker_ids),
        "class": type(context).__mro__[1].__name__,
    }


@django_task(takes_context=True)
def change_your_context(context: Any) -> None:
    context.task_result = None


@django_task
def raise_value_error(message: str) -> None:
    raise ValueError(message)


@django_task
def return_something_that_is_not_json() -> Any:
    return {1, 2}
