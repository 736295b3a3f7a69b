"""Durable tasks of the storm.  Their module is apart, because the last release has no ``durable=True``."""

from __future__ import annotations

import datetime as dt
import os
import random
from functools import cache, partial
from typing import Any

from django.db import connection

from django_pgqueue.tasks import task
from tests.proofs.reliability.tasks import MANY, Flaky, begin, wait_a_little
from tests.proofs.reliability.traps import trap

QUEUE = "durable"
"""Served by all workers but the last release."""
CHILD = 2_000_000_000_000
"""What is added to the token of a job for those of its children."""
KINDS = {"atomic": 6, "plain": 6, "flaky": 1, "sleep": 2, "event": 3, "child": 2, "fan": 1}
FAN = 2
"""Children that one atomic step enqueues."""
ATOMIC, PLAIN = ("atomic", "flaky"), ("plain",)
NUMBER_OF_CHILDREN = {"child": 1, "fan": FAN}


@cache
def kinds_of(token: int) -> tuple[str, ...]:
    """Returns the kinds of the steps that the job of a token has: for the job, who emits, and the judge."""
    chooser = random.Random(token)
    return tuple(chooser.choices(list(KINDS), list(KINDS.values()), k=chooser.randint(3, 8)))


def events_of(token: int) -> list[str]:
    return [event_of(token, number) for number, kind in enumerate(kinds_of(token)) if kind == "event"]


def event_of(token: int, number: int) -> str:
    return f"go:{token}:{number}"


@task(durable=True, max_attempts=MANY, backoff=wait_a_little)
def follow(context: Any, token: int) -> dict[str, Any]:
    """Takes its steps, each of which writes down who took it."""
    who = begin(context, token)
    for number, kind in enumerate(kinds_of(token)):
        name = f"{kind}-{number}"
        if kind == "sleep":
            context.sleep(name, dt.timedelta(milliseconds=50 + token * (number + 1) % 1500))
            context.step(f"woken-{number}", int)
        elif kind == "event":
            assert context.wait_for_event(event_of(token, number)) == {"token": token}
        elif kind in NUMBER_OF_CHILDREN:
            context.gather(children(context, kind, name, token), return_exceptions=True)
        else:
            context.step(name, partial(take_step, context, name, token), atomic=kind in ATOMIC)
    return who


def children(context: Any, kind: str, name: str, token: int) -> list[Any]:
    if kind == "child":
        return [follow_child.enqueue_in(context, CHILD + token)]

    def enqueue_all() -> list[int]:
        return [follow_child.enqueue_in(context, CHILD + token).id for _ in range(FAN)]

    found: list[Any] = context.step(name, enqueue_all, atomic=True)
    return found


def take_step(context: Any, name: str, token: int) -> int:
    message = context.message
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into storm_step_effect (message_id, attempt, name) values (%s, %s, %s)",
            [message.id, message.attempt, name],
        )
    trap("in a step")
    if name.startswith("flaky") and (token + message.attempt) % 2:
        raise Flaky
    return os.getpid()


@task(queue_name=QUEUE, takes_context=True, max_attempts=MANY, backoff=wait_a_little)
def follow_child(context: Any, token: int) -> dict[str, Any]:
    return begin(context, token)


def is_durable(task_path: str | None) -> bool:
    return task_path == follow.module_path
