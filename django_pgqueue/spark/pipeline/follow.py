"""Exports the history to the lake every few seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_pgqueue.spark.lake import Lake
from django_pgqueue.spark.lake.upkeep import compact, vacuum
from django_pgqueue.spark.pipeline.export import Run, check, pieces
from django_pgqueue.spark.pipeline.source_database import origin_of
from django_pgqueue.spark.progress import Progress

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession


VACUUM_EVERY = 100
"""Number of batches."""
LOOK_SECONDS = 0.2
"""How often ``until`` is asked."""


def follow(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    seconds: float = 10,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    until: Callable[[], bool] = lambda: False,
    once: bool = False,
) -> int:
    """Adds attempts to the lake every few ``seconds``, until ``until()`` or Ctrl-C.  Returns how many were added.

    It continues where the last export or follow ended, and the next export continues where it ends.  With ``once`` it
    adds the attempts that there are now, and ends.  A batch has about ``maxRowsPerBatch`` rows at most.
    """
    progress, options = progress or Progress(), options or {}
    check(options)
    lake = Lake.open_or_new(spark, path)
    added = 0
    with origin_of(lake, options) as origin:
        run = Run(lake, origin, options, "follow", progress)
        try:
            for batch, end in enumerate(_ends(run, seconds=None if once else seconds, until=until)):
                rows = sum(file.rows for file in run.advance(end))
                added += rows
                progress.step(f"following: {added:,} attempts, the last {rows:,} in batch {batch}")
                compact(lake)
                if batch % VACUUM_EVERY == VACUUM_EVERY - 1:
                    vacuum(lake)
        except KeyboardInterrupt:
            progress.say("stopping")
        vacuum(lake)
    return added


def _ends(run: Run, *, seconds: float | None, until: Callable[[], bool]) -> Iterator[int]:
    """Yields the ends of the batches, each when the batch before it is in the lake.  ``seconds`` is None: those of the
    attempts that there are now.
    """
    while not until():
        is_idle = True
        for end in pieces(run, run.next_end()):
            is_idle = False
            yield end
            if until():
                return
        run.known.stay(run.lake.version().position)
        if is_idle:
            run.tell_what_holds_back()
        if seconds is None:
            return
        due = time.monotonic() + seconds
        while time.monotonic() < due and not until():
            time.sleep(min(LOOK_SECONDS, seconds))
