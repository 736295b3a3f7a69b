"""The pages of schedules and queues in Chromium."""

from __future__ import annotations

import datetime as dt
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from django_pgqueue import control
from django_pgqueue.models import Schedule
from django_pgqueue.tasks import cron, every, task
from django_pgqueue.worker.upkeep.scheduler import Scheduler
from tests.admin.test_browser import chromium, looked_at, page
from tests.admin.test_schedule import QUEUES, REMIND, SCHEDULES, by_hand, url

if TYPE_CHECKING:
    from tests.support.fixtures import browser

__all__ = ["chromium", "page"]

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.django_db(transaction=True)]


@pytest.fixture
def schedules(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def close_the_books() -> None: ...

    close_the_books.__module__, close_the_books.__qualname__ = "shop.books", "close_the_books"
    module = ModuleType("shop.books")
    module.close_the_books = task(  # type: ignore[attr-defined]
        close_the_books,
        schedule=(
            cron("30 2 * * mon-fri", timezone="Europe/Berlin", name="nightly"),
            every(dt.timedelta(minutes=5), name="often"),
        ),
    )
    monkeypatch.setitem(sys.modules, "shop.books", module)
    by_hand("remind Ada", cron="0 9 * * mon", timezone="America/New_York")
    Scheduler("default").look_if_due(connection)
    now = dt.datetime.now(dt.UTC)
    by_hand("resting", cron=None, interval_ms=7_200_000, paused_at=now - dt.timedelta(hours=3))
    by_hand("gone", cron="0 0 1 * *", next_at=now, declared=True)
    by_hand("wrong", cron="whenever", next_at=now)
    by_hand("late", next_at=now - dt.timedelta(hours=2))
    control.pause("mail", by="Ada")


@pytest.mark.usefixtures("schedules")
def test_the_pages_of_schedules_look_decent(page: browser.Page) -> None:
    for name, address, text in [
        ("schedule-list", SCHEDULES, "no longer in the code"),
        ("schedule-declared", url("nightly"), "in Europe/Berlin"),
        ("schedule", url("remind Ada"), "Positional arguments"),
        ("schedule-add", f"{SCHEDULES}add/", "Dotted path of a task"),
        ("queue-list", QUEUES, "Ada"),
    ]:
        page.open(address)
        page.shows(text)
        looked_at(page, name)


@pytest.mark.usefixtures("schedules")
def test_a_schedule_is_made_in_the_browser_and_a_mistake_is_told(page: browser.Page) -> None:
    page.open(f"{SCHEDULES}add/")
    for name, text in {"name": "weekly", "task": REMIND, "cron": "whenever"}.items():
        page.find(f"[name={name}]").send_keys(text)
    page.press("Save")
    page.shows("send cannot be called with args=[]", "is not a cron expression")
    looked_at(page, "schedule-mistake")
    for name, text in {"args": '["Ada"]', "cron": "0 9 * * mon"}.items():
        page.find(f"[name={name}]").clear()
        page.find(f"[name={name}]").send_keys(text)
    page.press("Save")
    page.shows("weekly", "At 09:00 on Monday")
    assert Schedule.objects.get(name="weekly").content == {"args": ["Ada"], "kwargs": {}}
