"""This project, by the same steps as the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django
from django.core.management import call_command

from tests.bench.peers.adapter import PYTHON, STEPS, Adapter

if TYPE_CHECKING:
    from collections.abc import Sequence

AHEAD = """
insert into pgqueue_message (content, task, dequeue_at, priority, in_line)
select '{"args": [1], "kwargs": {}}', 'tests.bench.tasks.noop', pgqueue_now() + 86400000 + n, 100, false
from generate_series(1, %s) as n
"""


class Peer(Adapter):
    threads = 32 if STEPS else 4
    configuration = f"qworker --threads {threads}; everything else as it comes"

    def open(self) -> None:
        django.setup()
        from django.db import connection

        from tests.bench import tasks

        connection.ensure_connection()
        self.noop = tasks.workflow if STEPS else tasks.noop

    def install(self) -> None:
        call_command("migrate", verbosity=0)

    def workers(self, processes: int) -> list[list[str]]:
        sizes = ["--processes", str(processes), "--threads", str(self.threads)]
        return [[PYTHON, "-m", "django", "qworker", "-v", "0", *sizes]]

    def enqueue(self, number: int) -> Any:
        self.noop.enqueue(number)

    def bulk(self, numbers: Sequence[int]) -> Any:
        from django_pgqueue.backend import enqueue_many

        enqueue_many(self.noop, numbers)

    def ahead(self, count: int) -> Any:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute(AHEAD, (count,))
