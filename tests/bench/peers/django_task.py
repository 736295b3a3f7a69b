"""The task of the peers that are backends of django.tasks."""

from __future__ import annotations

from django.tasks import task

from tests.bench.tally import tally

noted = tally()


@task
def noop(number: int) -> None:
    noted.ran(number)
