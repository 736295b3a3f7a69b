"""Async durable tasks."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync

from django_pgqueue.durable import aemit
from django_pgqueue.testing import adrain, clock, drain
from tests.durable import tasks

if TYPE_CHECKING:
    from django_pgqueue.durable import DurableContext

HOUR = dt.timedelta(hours=1)

pytestmark = [pytest.mark.django_db(transaction=True)]


@async_to_sync
async def run() -> list[Any]:
    async with clock() as now:
        result = await tasks.in_an_event_loop.aenqueue("paid:7")
        await adrain(clock=now)
        await aemit("paid:7", 7)
        await adrain(clock=now)
    await result.arefresh()
    value: list[Any] = result.return_value
    return value


@async_to_sync
async def in_a_block() -> Any:
    result = await tasks.in_a_block_of_another_thread.aenqueue()
    await adrain()
    await result.arefresh()
    return result.errors[0].traceback


def test_a_step_in_a_transaction_that_an_async_task_has_opened_in_a_thread_is_refused() -> None:
    assert "'one' is inside of transaction.atomic()" in in_a_block()
    assert tasks.calls == []


def test_an_async_task_has_steps_sleeps_events_and_children() -> None:
    first, second, payload, doubled = run()
    assert (first, payload, doubled) == ("ONE", 7, 8)
    assert isinstance(second, int)
    assert tasks.calls == ["one", "double 4"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("step", ["one", str]),
        ("sleep", ["one", HOUR]),
        ("sleep_until", ["one", dt.datetime.now(dt.UTC)]),
        ("wait_for_event", ["one"]),
        ("approval", ["one"]),
        ("enqueue", [tasks.arun_code]),
        ("gather", [[]]),
        ("call", [tasks.arun_code]),
        ("spend", ["one", 1]),
    ],
)
def test_a_method_that_an_async_task_cannot_call_names_its_variant(name: str, arguments: list[Any]) -> None:
    async def code(context: DurableContext) -> None:
        getattr(context, name)(*arguments, **{"of": 2} if name == "spend" else {})

    tasks.CODE["code"] = code
    result = tasks.arun_code.enqueue("code")
    drain()
    result.refresh()
    assert f"An async task cannot call this: await context.a{name}(…)." in result.errors[0].traceback


@pytest.mark.timeout(60)
def test_a_step_that_raises_stop_iteration_ends_its_async_task() -> None:
    async def code(context: DurableContext) -> None:
        await context.astep("first of none", lambda: next(iter([])))

    tasks.CODE["code"] = code
    result = tasks.arun_code.enqueue("code")
    drain()
    result.refresh()
    assert "RuntimeError: the function of the step raised StopIteration" in result.errors[0].traceback
