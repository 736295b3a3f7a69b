"""Compares the clock of this host with that of the server."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from django_pgqueue.monitoring.doctor.finding import Finding, Kind, Severity
from django_pgqueue.monitoring.overview.formatting import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.monitoring.doctor.subject import Subject

MOST = dt.timedelta(seconds=2)

CLOCK_DIFFERENCE = Kind(
    "clock-difference",
    Severity.WARNING,
    "The queue uses the clock of the server, so the difference starts no job too early or too late. But times that "
    "your code computes (run_after=datetime.now() + ...) and times in logs differ by as much. Synchronise the clocks "
    "(NTP).",
)


def difference(patient: Subject) -> Iterator[Finding]:
    before = patient.now()
    theirs = patient.value("select clock_timestamp()")
    after = patient.now()
    # The server reads its clock between the two readings here: a slow network does not count as a difference.
    off = max(before - theirs, theirs - after, dt.timedelta(0))
    if off > MOST:
        yield CLOCK_DIFFERENCE.found(
            f"The clock of this host is {span(off)} {'behind' if theirs > after else 'ahead of'} that of the server.",
            "timedatectl status",
            seconds=(before - theirs).total_seconds(),
        )
