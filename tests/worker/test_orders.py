"""A worker follows orders of people: it pauses, goes on, stops, and runs more or fewer jobs at a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue import control
from django_pgqueue.exceptions import InvalidMessage
from django_pgqueue.models import Worker
from tests.support.site.tasks import hold, nothing
from tests.support.waiting import wait_until
from tests.support.watching import ended, holder, started

if TYPE_CHECKING:
    from django_pgqueue.worker.process import WorkerProcess
    from tests.support.diary import Diary
    from tests.support.fixtures.consumers import Consume
    from tests.support.fixtures.workers import Start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]


def order(consumer: WorkerProcess, what: str, slots: int | None = None) -> None:
    wait_until(lambda: Worker.objects.filter(pk=consumer.id).exists(), "it has a row")
    assert control.order_worker(consumer.id, what, slots=slots, by="Ada")


def pause(consumer: WorkerProcess) -> None:
    """A poll may read the order, and then end its claim: what the row says is written after that."""
    order(consumer, "pause")
    rows = Worker.objects.filter(pk=consumer.id, has_room=False, asleep_until=None)
    wait_until(lambda: consumer.orders.is_paused and rows.exists(), "it is paused")


def test_a_paused_worker_ends_what_runs_and_begins_nothing_until_it_resumes(consume: Consume, diary: Diary) -> None:
    consumer = consume(threads=2)
    held = hold.enqueue("x")
    started(diary, "x")
    pause(consumer)
    later = nothing.enqueue()
    diary.allow("x-1")
    ended(held)
    looks = consumer.registration.next_seen
    wait_until(lambda: consumer.registration.next_seen > looks, "it refreshes its row")
    assert holder(later) is None
    row = Worker.objects.get(pk=consumer.id)
    assert (row.ordered, row.ordered_by, row.has_room, row.asleep_until) == ("pause", "Ada", False, None)
    order(consumer, "resume")
    ended(later)


def test_another_worker_takes_what_a_paused_one_leaves(consume: Consume) -> None:
    paused = consume()
    pause(paused)
    other = consume()
    assert ended(nothing.enqueue()).worker_ids == [other.id]


def test_a_worker_gets_more_slots_and_fewer(consume: Consume, diary: Diary) -> None:
    consumer = consume(threads=1)
    jobs = {name: hold.enqueue(name) for name in ("a", "b", "c")}
    started(diary, "a")
    order(consumer, "slots", 3)
    for name in ("b", "c"):
        started(diary, name)
    wait_until(lambda: Worker.objects.get(pk=consumer.id).slots == 3, "the row has three slots")
    order(consumer, "slots", 1)
    wait_until(lambda: consumer.slots.count == 1, "it has one slot")
    for name in ("a", "b", "c"):
        diary.allow(f"{name}-1")
        ended(jobs[name])
    more = [hold.enqueue(name) for name in ("d", "e")]
    wait_until(lambda: any(holder(job) for job in more), "it goes on")
    wait_until(lambda: len(consumer.slots.threads._all) == 1, "two threads have left")
    assert sum(holder(job) is not None for job in more) == 1
    for name in ("d", "e"):
        diary.allow(f"{name}-1")
    for job in more:
        ended(job)


@pytest.mark.parametrize("slots", [0, 1001, 2.5, "8", True])
def test_a_worker_has_a_whole_number_of_slots(slots: Any) -> None:
    words = f"A worker cannot have {slots!r} slots: give it a whole number from 1 to 1,000."
    with pytest.raises(InvalidMessage, match=re.escape(words)):
        control.order_worker("worker-1", "slots", slots=slots)


def test_a_worker_is_stopped_with_its_supervisor(start: Start, diary: Diary) -> None:
    held = hold.enqueue("x")
    worker = start("--processes", "2", "-v", "0", ready=False)
    started(diary, "x")
    wait_until(lambda: Worker.objects.count() == 2, "both have rows")
    assert control.order_worker(Worker.objects.order_by("pk")[0].pk, "stop", by="Ada")
    diary.allow("x-1")
    assert worker.ends() == 0
    ended(held)
    assert not Worker.objects.exists()
