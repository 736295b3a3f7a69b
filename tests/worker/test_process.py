"""The consumer's thread: what it does between two statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue.backend import Call, enqueue_many
from django_pgqueue.models import Attempt
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.settings import WorkerSettings
from tests.support.site.tasks import nothing
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import pytest

    from tests.support.fixtures.workers import Session


def test_a_busy_worker_never_waits_for_zero_seconds(
    transactional_db: None, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wait for no time is to hand the interpreter to the slots, and to get it back when they have no more to do."""
    enqueue_many(nothing, [Call()] * 4000)
    consumer = WorkerProcess(WorkerSettings(threads=2, burst=True))
    waits, wait = [], consumer.wakeup.wait

    def noted(seconds: float, *files: int) -> set[int]:
        waits.append(seconds)
        return wait(seconds, *files)

    monkeypatch.setattr(consumer.wakeup, "wait", noted)
    assert consumer.run() == 0
    wait_until(lambda: not session.strangers(), "the slots are gone")
    assert Attempt.objects.filter(status="succeeded").count() == 4000
    assert waits
    assert min(waits) > 0
