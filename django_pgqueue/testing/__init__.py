"""Tools for the tests of projects that use the queue."""

from __future__ import annotations

from django_pgqueue.testing.assertions import (
    aassert_enqueued,
    aassert_not_enqueued,
    assert_enqueued,
    assert_not_enqueued,
)
from django_pgqueue.testing.clock import Clock, clock
from django_pgqueue.testing.crashes.crash import Crash, CrashReport, acrash_at_every_statement, crash_at_every_statement
from django_pgqueue.testing.drain import WORKER, adrain, drain
from django_pgqueue.testing.inline import inline

__all__ = [
    "WORKER",
    "Clock",
    "Crash",
    "CrashReport",
    "aassert_enqueued",
    "aassert_not_enqueued",
    "acrash_at_every_statement",
    "adrain",
    "assert_enqueued",
    "assert_not_enqueued",
    "clock",
    "crash_at_every_statement",
    "drain",
    "inline",
]
