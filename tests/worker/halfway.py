"""A module whose import takes as long as a test wants it to."""

from __future__ import annotations

from django_pgqueue.tasks import task
from tests.support.diary import Diary

Diary.of_this_process().write("halfway")
Diary.of_this_process().wait_for("halfway")


@task
def half() -> float:
    return HALF


HALF = 0.5
