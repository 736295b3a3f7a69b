"""Exports the history to the lake continuously: Structured Streaming, with a checkpoint beside the manifests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from django_pgqueue.spark.lake import Lake, LakeConflict
from django_pgqueue.spark.lake.cleanup import tidy
from django_pgqueue.spark.lake.compaction import compact
from django_pgqueue.spark.lake.data_files import clear, stage
from django_pgqueue.spark.lake.lake import FOLLOWED
from django_pgqueue.spark.pipeline.export import add, run_name
from django_pgqueue.spark.pipeline.progress import Quiet
from django_pgqueue.spark.pipeline.source_database import position_of, writing
from django_pgqueue.spark.source import registered

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from django_pgqueue.spark.pipeline.progress import Progress

NOT_STARTED = "Python worker failed to connect back"
"""What Spark says on a machine that is too busy to start a Python worker."""
MAX_STARTS = 5
TIDY_EVERY = 100
"""Number of batches."""


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
    adds the attempts that there are now, and ends.
    """
    progress, options = progress or Quiet(), options or {}
    lake = Lake.open_or_make(spark, path)
    with writing(lake, options) as origin:
        origin.next_position(lake.manifest())
        batches = Batches(lake, origin.identity(), progress)
        tries = 0
        while not _ran(batches.start(options, seconds=None if once else seconds), until, progress, tries=tries):
            tries += 1
        tidy(lake)
        return batches.rows


def _ran(query: StreamingQuery, until: Callable[[], bool], progress: Progress, *, tries: int) -> bool:
    """Returns whether the query has run.  False: it could not begin, because Spark waits for its Python worker for ten
    seconds only.  Nothing has happened then, so it may be started again.
    """
    try:
        while not query.awaitTermination(1) and not until():
            pass
    except KeyboardInterrupt:
        progress.say("stopping")
    except StreamingQueryException as error:
        if NOT_STARTED not in str(error) or tries == MAX_STARTS - 1:
            raise
        progress.say("Spark's Python worker did not start in ten seconds; trying again")
        return False
    finally:
        query.stop()
    return True


class Batches:
    """The callback that Spark calls for every batch.

    A batch may come twice, after a driver was killed between the manifest and the checkpoint.  The checkpoint has its
    end before it begins, and the manifest has the lake's position, so ``add`` notices the second one.
    """

    def __init__(self, lake: Lake, source: str, progress: Progress) -> None:
        self.lake = lake
        self.source = source
        self.progress = progress
        self.rows = 0
        manifest = lake.manifest()
        self.start_position = position_of(manifest)
        self.checkpoint = self._checkpoint(manifest.notes.get("followed"))

    def _checkpoint(self, last: Mapping[str, Any] | None) -> str:
        """Returns that of the last follow, but a new one after an export: Spark would repeat the exported rows."""
        if last is not None and last["position"] == self.start_position:
            return str(last["checkpoint"])
        # A new name: an older checkpoint from here may have planned a batch that another run has written since.
        return f"{FOLLOWED}/{run_name()}"

    def start(self, options: Mapping[str, str], seconds: float | None) -> StreamingQuery:
        own = {"fromTransaction": str(self.start_position)} if self.start_position else {}
        stream = registered(self.lake.spark).readStream.format("pgqueue").options(**{**options, **own}).load()
        writer = stream.writeStream.foreachBatch(self.add).option(
            "checkpointLocation", self.lake.files.url(self.checkpoint)
        )
        trigger = (
            writer.trigger(availableNow=True)
            if seconds is None
            else writer.trigger(processingTime=f"{seconds} seconds")
        )
        return trigger.start()

    def add(self, rows: DataFrame, batch: int) -> None:
        before = self.lake.manifest()
        end = self._end(batch)
        begin = self._end(batch - 1) if batch else self.start_position
        if position_of(before) >= end:
            return
        if position_of(before) != begin:
            message = (
                f"{self.lake.root} is at transaction {before.position}, and this batch begins at {begin}: another "
                "process has written it. Nothing was written: start the command again."
            )
            raise LakeConflict(message)
        run = run_name()
        staged = stage(self.lake, rows, "attempts", run)
        followed = {"checkpoint": self.checkpoint, "position": end}
        add(self.lake, before, staged, position=end, source=self.source, written_by="follow", followed=followed)
        clear(self.lake, run)
        added = sum(file.rows for _, file, _ in staged)
        self.rows += added
        self.progress.step(f"following: {self.rows:,} attempts, the last {added:,} in batch {batch}")
        compact(self.lake, run_name())
        if batch % TIDY_EVERY == TIDY_EVERY - 1:
            tidy(self.lake)

    def _end(self, batch: int) -> int:
        """Returns the end of a batch, which Spark records before the batch begins."""
        text = self.lake.files.read(f"{self.checkpoint}/offsets/{batch}").decode()
        return int(json.loads(text.splitlines()[-1])["transaction"])
