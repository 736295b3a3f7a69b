"""The job that is measured: none."""

from __future__ import annotations

from django_pgqueue.tasks import task


@task
def noop(number: int = 0) -> None:
    """Takes what a small job takes and does nothing with it."""


@task
async def async_noop(number: int = 0) -> None:
    """The same, on the event loop."""
