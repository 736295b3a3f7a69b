"""Two tasks.  The schedules of the first: ``{"name": {"every_ms": 100, "catch_up": "all"}}``."""

from __future__ import annotations

import datetime as dt
import json
import os
from typing import TYPE_CHECKING, Any

from django_pgqueue.tasks import every, task
from tests.support.diary import Diary

if TYPE_CHECKING:
    from django_pgqueue.tasks.schedule import Recurrence

SCHEDULES = "PGQUEUE_TEST_SCHEDULES"


def recurrence(name: str, *, every_ms: int, **more: Any) -> Recurrence:
    return every(dt.timedelta(milliseconds=every_ms), name=name, kwargs={"word": name}, **more)


DECLARED = tuple(recurrence(name, **words) for name, words in json.loads(os.environ.get(SCHEDULES, "{}")).items())


@task(schedule=DECLARED or None)
def tick(word: str) -> None:
    """Leaves a word in the diary."""
    Diary.of_this_process().write(word)


@task(queue_name="mail", priority=7, max_attempts=3)
def send(to: str, *, polite: bool = True) -> str:
    """The task of schedules that are made by hand."""
    return to
