"""One task, of which ``PGQUEUE_TEST_VERSION`` chooses the parameters."""

from __future__ import annotations

import os

from django.db import transaction

from django_pgqueue.tasks import task
from tests.support.diary import Diary

if os.environ.get("PGQUEUE_TEST_VERSION") == "2":

    @task
    def greet(name: str, greeting: str) -> str:
        Diary.of_this_process().write(name)
        return f"{greeting}, {name}"

elif os.environ.get("PGQUEUE_TEST_VERSION") == "async":

    @task
    async def greet(name: str) -> str:
        Diary.of_this_process().write(name)
        return f"Hello, {name}"

elif os.environ.get("PGQUEUE_TEST_VERSION") == "decorated":

    @task
    @transaction.atomic
    def greet(name: str) -> str:
        Diary.of_this_process().write(name)
        return f"Hello, {name}"

else:

    @task
    def greet(name: str) -> str:
        Diary.of_this_process().write(name)
        return f"Hello, {name}"
