"""The durable tasks of these tests."""

from __future__ import annotations

import datetime as dt
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import transaction

from django_pgqueue.durable import DurableContext, emit
from django_pgqueue.exceptions import ChildFailed
from django_pgqueue.tasks import task

calls: list[str] = []
"""What the steps of these tests have done, in this process."""
HOUR = dt.timedelta(hours=1)
CODE: dict[str, Any] = {}
"""Functions of the tests, which take the context of a task."""


class Trouble(Exception):
    """The error of the steps that fail."""


def at_once(*_: Any) -> float:
    return 0.0


def note(what: str) -> str:
    calls.append(what)
    return what.upper()


def add_group(name: str) -> int:
    pk: int = Group.objects.create(name=name).pk
    return pk


def add_group_and_fail(name: str) -> None:
    add_group(name)
    raise Trouble(name)


@task
def double(number: int) -> int:
    calls.append(f"double {number}")
    return 2 * number


@task
def quiet(number: int) -> int:
    return number


@task
def fail(text: str) -> None:
    raise Trouble(text)


@task(durable=True, max_attempts=3, backoff=at_once)
def three_steps(context: DurableContext, fail_in: int = 0) -> list[Any]:
    first = context.step("first", note, "one")
    second = context.step("second", add_group, f"of {context.message.id}", atomic=True)
    if context.attempt <= fail_in:
        raise Trouble
    return [first, second, context.step("third", note, "three")]


@task(durable=True)
def sleepy(context: DurableContext) -> Any:
    context.step("before", note, "before")
    context.sleep("a while", HOUR)
    return context.step("after", note, "after")


@task(durable=True)
def waiting(context: DurableContext, event: str, hours: int | None = None) -> Any:
    paid = context.wait_for_event(event, timeout=None if hours is None else hours * HOUR)
    return context.step("then", note, "too late") if paid is None else paid


@task(durable=True)
def emitting(context: DurableContext, event: str) -> None:
    context.step("emit", emit, event, {"by": "a step"}, atomic=True)


@task(durable=True)
def parent(context: DurableContext, numbers: list[int]) -> list[int]:
    children = [double.enqueue_in(context, number) for number in numbers]
    return [*context.gather(children), context.call(double, 100)]


@task(durable=True)
def parent_of_failure(context: DurableContext, keep: bool = False) -> Any:
    children = [double.enqueue_in(context, 1), fail.enqueue_in(context, "no")]
    if keep:
        return [str(value) for value in context.gather(children, return_exceptions=True)]
    try:
        context.gather(children)
    except ChildFailed as error:
        return [error.status, error.error_message]


CARD = "47110815"


@task(sensitive=True)
def pay(card: str) -> None:
    message = f"the card {card} was refused"
    raise Trouble(message)


@task(durable=True)
def parent_of_payment(context: DurableContext) -> None:
    context.call(pay, CARD)


@task(durable=True)
def many_children(context: DurableContext, count: int) -> int:
    ids = context.step("fan out", lambda: [double.enqueue_in(context, n).id for n in range(count)], atomic=True)
    return sum(context.gather(ids))


@task(durable=True)
def asks(context: DurableContext, to: str | None = None) -> list[Any]:
    decision = context.approval("ship-abroad", to=to, show={"order": 7})
    return [bool(decision), decision.by, decision.comment]


@task(durable=True, max_attempts=4, backoff=at_once)
def spends(context: DurableContext) -> str:
    return str(context.spend("tokens", 40, of=100))


async def shout(text: str) -> str:
    calls.append(text)
    return text.upper()


@task(durable=True, max_attempts=3, backoff=at_once)
async def in_an_event_loop(context: DurableContext, event: str) -> list[Any]:
    first = await context.astep("first", shout, "one")
    second = await context.astep("second", add_group, f"async {context.message.id}", atomic=True)
    if context.attempt == 1:
        raise Trouble
    await context.asleep("a while", HOUR)
    payload = await context.await_for_event(event)
    return [first, second, payload, await context.acall(double, 4)]


@task(durable=True)
async def in_a_block_of_another_thread(context: DurableContext) -> None:
    def block() -> None:
        with transaction.atomic():
            context.step("one", note, "one", atomic=True)

    await sync_to_async(block)()


@task(durable=True)
def run_code(context: DurableContext, name: str) -> Any:
    """Calls one of the test's functions with the context."""
    return CODE[name](context)


@task(durable=True)
async def arun_code(context: DurableContext, name: str) -> Any:
    return await CODE[name](context)
