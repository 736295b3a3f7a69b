"""The jobs that are measured: they note that they ran, and do next to nothing."""

from __future__ import annotations

import os
import time
from typing import Any

from django.db import connection

from django_pgqueue.compat import task_finished, task_started
from django_pgqueue.tasks import task
from tests.bench.models import Row
from tests.bench.peers.adapter import STEPS
from tests.bench.tally import tally

TALLY = tally()
RECEIVERS = "PGQUEUE_BENCH_RECEIVERS"
"""In the environment of a worker: somebody receives the signals of its jobs."""


def receive(sender: Any, task_result: Any, **_: Any) -> None:
    """Takes a signal, and does nothing with it."""


if RECEIVERS in os.environ:
    task_started.connect(receive)
    task_finished.connect(receive)


@task
def noop(number: int = -1) -> None:
    """Takes what a small job takes and does nothing with it."""
    TALLY.ran(number)


@task(durable=True)
def workflow(context: Any, number: int = -1) -> None:
    """Steps that do nothing but return a number."""
    for value in range(STEPS):
        context.step(f"step-{value}", int, value)
    TALLY.ran(number)


@task(durable=True)
def nap_in_a_step(context: Any, number: int = -1, seconds: float = 0.02) -> None:
    context.step("before", TALLY.ran, number)
    context.step("nap", nap.func, number, seconds)


def event_of(number: int) -> str:
    return f"bench:{number}"


@task(durable=True)
def wait_for_its_event(context: Any, number: int) -> None:
    context.wait_for_event(event_of(number))
    TALLY.ran(number)


@task
async def async_noop(number: int = -1) -> None:
    """The same, on the event loop."""
    TALLY.ran(number)


@task
def nap(number: int = -1, seconds: float = 0.02) -> None:
    """Waits, as for another service."""
    TALLY.ran(number)
    time.sleep(seconds)


@task
def nap_briefly(number: int = -1) -> None:
    """Waits for 5 ms."""
    TALLY.ran(number)
    time.sleep(0.005)


@task
def orm(number: int = -1) -> None:
    """Two statements of Django's ORM, as a small job of a site has them."""
    TALLY.ran(number)
    row = Row.objects.create(number=number)
    Row.objects.filter(pk=row.pk).update(number=number + 1)


WRITE = "insert into bench_row (number) values (%s)"


@task(atomic=True)
def atomic_row(number: int = -1) -> None:
    """Writes one row in the transaction that ends the job."""
    TALLY.ran(number)
    with connection.cursor() as cursor:
        cursor.execute(WRITE, (number,))
