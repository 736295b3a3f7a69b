"""Tools for the tests of projects that use the queue."""

from __future__ import annotations

from django_pgqueue.testing.clocks import Clock, clock
from django_pgqueue.testing.draining import WORKER, adrain, drain
from django_pgqueue.testing.enqueued import (
    aassert_enqueued,
    aassert_not_enqueued,
    assert_enqueued,
    assert_not_enqueued,
)
from django_pgqueue.testing.inlining import inline

__all__ = [
    "WORKER",
    "Clock",
    "aassert_enqueued",
    "aassert_not_enqueued",
    "adrain",
    "assert_enqueued",
    "assert_not_enqueued",
    "clock",
    "drain",
    "inline",
]
