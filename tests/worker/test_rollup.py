"""A worker adds up what has ended, a minute after it ended something, and else leaves the database alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.models import Rollup
from django_pgqueue.worker.upkeep import rollup
from django_pgqueue.worker.upkeep.rollup import RollingUp
from tests.support.site.tasks import nothing
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]


def test_what_a_worker_has_ended_is_in_the_figures(consume: Consume, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "EVERY_SECONDS", 0.1)
    monkeypatch.setattr(rollup, "FREE_SECONDS", 0)
    consume()
    nothing.enqueue()
    wait_until(lambda: Rollup.objects.filter(minutes=60, succeeded=1).exists(), "the figures have the job")
    assert {figure.task for figure in Rollup.objects.all()} == {nothing.module_path}


def test_a_worker_that_starts_adds_up_what_a_burst_has_ended(
    start: Start, consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing.enqueue()
    assert start("--burst", ready=False).ends() == 0
    monkeypatch.setattr(rollup, "FREE_SECONDS", 0)
    consume()
    wait_until(lambda: Rollup.objects.filter(minutes=60, succeeded=1).exists(), "the figures have the job")


def test_a_worker_that_has_ended_nothing_asks_once() -> None:
    duty = RollingUp()
    assert duty.due_at() <= time.monotonic()
    duty.has_ended = False  # as it is when the duty was done
    assert duty.due_at() == float("inf")
    duty.ended()
    assert rollup.EVERY_SECONDS - 5 < duty.due_at() - time.monotonic() <= rollup.EVERY_SECONDS
