"""Compares the clock of this host with that of the server."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.overview import host
from django_pgqueue.monitoring.overview.formatting import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

CLOCK_DIFFERENCE = Kind(
    "clock-difference",
    Severity.WARNING,
    "The queue uses the clock of the server, so the difference starts no job too early or too late. But times that "
    "your code computes (run_after=datetime.now() + ...) and times in logs differ by as much. Synchronise the clocks "
    "(NTP).",
)


def difference(patient: Subject) -> Iterator[Finding]:
    ahead = host.clock_ahead(using=patient.using, now=patient.now)
    if ahead is not None:
        yield CLOCK_DIFFERENCE.found(
            f"The clock of this host is {span(abs(ahead))} {'ahead of' if ahead > dt.timedelta() else 'behind'} that "
            "of the server.",
            "timedatectl status",
            seconds=ahead.total_seconds(),
        )
