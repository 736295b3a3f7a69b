"""By how much a backlog grows, without a counter that enqueues would pay for.

A message is part of the backlog from when it is ready until its attempt begins.  What has become ready in the last ten
minutes and still waits has come; what was ready before and has begun since has gone.  Their difference is that of two
backlogs, one of now and one of ten minutes ago: what came and went in between is in neither.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from django_pgqueue.monitoring.overview import census
from django_pgqueue.monitoring.overview.throughput import RECENT, Pulse

if TYPE_CHECKING:
    from django_pgqueue.monitoring.overview.census import Census
    from django_pgqueue.monitoring.overview.throughput import Pulses

A_BLOCK = 30
"""Messages of the same moment stand together: the rows of a sampled block are no better than one."""
SURE = 2
"""A difference of fewer standard deviations may be none."""


def a_minute(queue: str, counted: Census, pulses: Pulses) -> float | None:
    """Returns by how many messages the backlog of a queue grows; None: samples do not tell."""
    if queue not in counted.queues and not counted.is_whole:
        return None
    states = counted.queues.get(queue, census.NOBODY)
    scale = counted.scale or 1
    worked_off = pulses.queues.get(queue, Pulse()).worked_off
    growth = scale * (states.newly_ready - states.newly_begun) - worked_off
    variance = 0.0
    if counted.scale is not None:
        variance += scale**2 * A_BLOCK * max(1, states.newly_ready + states.newly_begun)
    if not pulses.is_exact:
        variance += pulses.step * max(pulses.step, worked_off)
    if variance and abs(growth) < SURE * sqrt(variance):
        return None
    return growth / (RECENT.total_seconds() / 60)
