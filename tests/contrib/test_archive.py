"""A project on both systems: days on Celery, a week here, and the week of the move have the same effects."""

from __future__ import annotations

import datetime as dt
import importlib
import logging
import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("celery", reason="celery is installed beside Django 5.2", exc_type=ImportError)

from celery.contrib.testing.worker import start_worker
from celery.schedules import crontab
from django.db import connection

from django_pgqueue.models import Attempt, Message
from django_pgqueue.tasks import registry
from django_pgqueue.testing import clock, drain
from django_pgqueue.worker.upkeep.scheduler import Scheduler
from tests.contrib.archive import with_celery, work
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.django_db, pytest.mark.once, pytest.mark.slow]

MONDAY = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
UNREADABLE = 3
"""Day on which one attachment cannot be read."""


@pytest.fixture(autouse=True)
def _nothing_has_happened() -> None:
    work.EFFECTS.clear()
    work.REFUSED_ONCE.clear()


@pytest.fixture(scope="module")
def with_pgqueue() -> Iterator[Any]:
    """The tasks of this package.  Their schedules are declared while the tests here run, and not to other ones."""
    name = f"{work.__package__}.with_pgqueue"
    yield importlib.import_module(name)
    del sys.modules[name]
    registry.forget()


def enqueue_a_day(day: int, *, mail: Any, documents: Any, webhooks: Any, schedules: Any) -> None:
    bad = [f"{day}.exe"] if day == UNREADABLE else []
    mail.mail_came(f"mail {day}", [f"{day}-a.pdf", f"{day}-b.pdf", *bad])
    documents.rotate([10 * day, 10 * day + 1])
    webhooks.workflow(f"https://example.com/{day}")
    schedules.schedule_is_due("Optimize the index")


def effects_of_a_day(day: int) -> list[tuple[Any, ...]]:
    paths = [f"{day}-a.pdf", f"{day}-b.pdf"]
    done = [f"Success. New document id {path} created" for path in paths]
    return [
        *[("consumed", path) for path in paths],
        ("mail has failed", f"mail {day}") if day == UNREADABLE else ("mail is done", f"mail {day}", *done),
        ("archived", 10 * day),
        ("archived", 10 * day + 1),
        ("indexed", 10 * day, 10 * day + 1, "after their archives"),
        ("sent", f"https://example.com/{day}"),
        ("ran", "index_optimize"),
    ]


def effects_of(days: range) -> Counter[Any]:
    return Counter(effect for day in days for effect in effects_of_a_day(day))


def everywhere(system: Any) -> dict[str, Any]:
    return dict.fromkeys(("mail", "documents", "webhooks", "schedules"), system)


@contextmanager
def celery_s_worker() -> Iterator[None]:
    level = logging.root.level  # Celery sets it
    try:
        with start_worker(with_celery.app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
            yield
    finally:
        logging.root.setLevel(level)


def celery_has_done(days: Counter[Any]) -> None:
    wait_until(lambda: not days - Counter(work.EFFECTS), "Celery has done it")


def declare_the_schedules() -> Scheduler:
    scheduler = Scheduler("default")
    scheduler.look_if_due(connection)
    return scheduler


def work_here(now: Any) -> None:
    drain()
    now.advance(dt.timedelta(minutes=10))
    drain()
    assert not Message.objects.exists()


def test_days_on_celery() -> None:
    days = range(UNREADABLE, UNREADABLE + 2)
    with celery_s_worker():
        for day in days:
            enqueue_a_day(day, **everywhere(with_celery))
        celery_has_done(effects_of(days))
    assert Counter(work.EFFECTS) == effects_of(days)


def test_a_week_here(with_pgqueue: Any) -> None:
    with clock(MONDAY) as now:
        declare_the_schedules()
        for day in range(7):
            enqueue_a_day(day, **everywhere(with_pgqueue))
            work_here(now)
            now.advance(dt.timedelta(days=1))
    assert Counter(work.EFFECTS) == effects_of(range(7))


def test_the_week_of_the_move(with_pgqueue: Any) -> None:
    """Task by task, while both run; and what waited in Celery's broker when the last one had moved is done there."""
    moved: dict[str, Any] = everywhere(with_celery)
    with clock(MONDAY) as now:
        declare_the_schedules()
        with celery_s_worker():
            for day, what in enumerate((None, "webhooks", "schedules")):
                if what is not None:
                    moved[what] = with_pgqueue
                enqueue_a_day(day, **moved)
                work_here(now)
            celery_has_done(effects_of(range(2)))
        enqueue_a_day(3, **moved)  # Celery's worker does not run
        moved = everywhere(with_pgqueue)
        for day in range(4, 7):
            enqueue_a_day(day, **moved)
            work_here(now)
        left = effects_of(range(7)) - Counter(work.EFFECTS)
        assert left, "Celery's broker has the rest"
        with celery_s_worker():
            celery_has_done(effects_of(range(7)))
    assert Counter(work.EFFECTS) == effects_of(range(7))


def test_both_systems_enqueue_at_the_same_times(with_pgqueue: Any) -> None:
    for task, cron, _ in work.SCHEDULES.values():
        slots = celery_s_slots(cron)
        assert slots
        here = getattr(with_pgqueue, task).schedule.rule
        assert [slot for slot, _ in zip(here.after(MONDAY), slots, strict=False)] == slots


def celery_s_slots(cron: str) -> list[dt.datetime]:
    """When Celery's crontab is due in the week."""
    theirs, slots = crontab.from_string(cron), [MONDAY]
    theirs.nowfun = lambda: slots[-1]
    while slots[-1] < MONDAY + dt.timedelta(days=7):
        slots.append(slots[-1] + theirs.remaining_delta(slots[-1])[1])
    return slots[1:-1]


def test_a_scheduled_job_expires_before_the_next_one(with_pgqueue: Any) -> None:
    with clock(MONDAY) as now:
        scheduler = declare_the_schedules()
        now.advance(dt.timedelta(minutes=10))
        scheduler.next_look = 0.0
        assert scheduler.look_if_due(connection)
        now.advance(dt.timedelta(minutes=9, seconds=1))
        drain()
        assert ("ran", "process_mail_accounts") not in work.EFFECTS
        assert Attempt.objects.get(task=with_pgqueue.process_mail_accounts.module_path).status == "cancelled"
        now.advance(dt.timedelta(seconds=59))
        scheduler.next_look = 0.0
        scheduler.look_if_due(connection)
        drain()
        assert work.EFFECTS.count(("ran", "process_mail_accounts")) == 1
