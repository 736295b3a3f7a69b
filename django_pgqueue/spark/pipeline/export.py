"""Exports the attempts that were finished since the last run to the lake."""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue.spark.lake import Lake
from django_pgqueue.spark.lake.cleanup import tidy
from django_pgqueue.spark.lake.compaction import compact
from django_pgqueue.spark.lake.data_files import clear, publish, stage
from django_pgqueue.spark.lake.direct_export import fill
from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.lake.files import LocalFiles
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.pipeline.progress import Quiet
from django_pgqueue.spark.pipeline.source_database import position_of, writing
from django_pgqueue.spark.reader import PgQueueReader
from django_pgqueue.spark.schema import ATTEMPTS
from django_pgqueue.spark.source import registered

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from django_pgqueue.spark.lake import Manifest
    from django_pgqueue.spark.lake.data_files import StagedFiles
    from django_pgqueue.spark.pipeline.progress import Progress
    from django_pgqueue.spark.pipeline.source_database import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    rows: int
    files: int
    bytes: int
    version: int
    """Version of the lake's manifest."""


def export(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Adds each attempt that has been finished since the last export to the lake, once.

    ``options`` are those of the data source ``pgqueue``, such as ``urlVariable``.  If an attempt's
    transaction, or an older one, has not ended yet, the next run exports it.

    >>> export(spark, "/data/jobs").rows  # doctest: +SKIP
    250000
    """
    progress = progress or Quiet()
    lake = Lake.open_or_make(spark, path)
    with writing(lake, options or {}) as origin:
        before = lake.manifest()
        end = origin.next_position(before)
        run = run_name()
        progress.step("reading the history")
        staged = gathered(lake, options or {}, position_of(before), end, run)
        verify(origin, staged, position_of(before), end)
        progress.step("making it visible")
        manifest = add(lake, before, staged, position=end, source=origin.identity(), written_by="export")
        clear(lake, run)
        progress.step("compacting")
        manifest = compact(lake, f"{run}-compact")
        tidy(lake)
        files = [file for _, file, _ in staged]
        return Exported(
            rows=sum(file.rows for file in files),
            files=len(files),
            bytes=sum(file.bytes for file in files),
            version=manifest.version,
        )


def run_name() -> str:
    return f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def gathered(lake: Lake, options: Mapping[str, str], start: int, end: int, run: str) -> list[StagedFiles]:
    """Stages the rows that the transactions from ``start`` until before ``end`` have written."""
    cut = {**options, "fromTransaction": str(start), "toTransaction": str(end)}
    if isinstance(lake.files, LocalFiles):
        return fill(lake, PgQueueReader(PipelineOptions.of(cut), ATTEMPTS), run)
    return stage(lake, registered(lake.spark).read.format("pgqueue").options(**cut).load(), "attempts", run)


def verify(origin: Origin, staged: list[StagedFiles], start: int, end: int) -> None:
    """Checks that the files have the rows of the table: PostgreSQL counts them, not the code that wrote the files."""
    rows, ids = origin.count(start, end)
    if (rows, ids) != (sum(file.rows for _, file, _ in staged), sum(ids for _, _, ids in staged)):
        message = (
            f"The files have {sum(file.rows for _, file, _ in staged)} rows, the history {rows} between transactions "
            f"{start} and {end}, or different ones. Nothing was made visible. Check whether partitions were dropped in "
            "the meantime, and run the export again."
        )
        raise LakeError(message)


def add(
    lake: Lake,
    before: Manifest,
    staged: list[StagedFiles],
    *,
    position: int,
    source: str,
    written_by: str,
    **notes: object,
) -> Manifest:
    """Makes staged rows visible, together with the new position."""
    files = publish(lake, staged)
    return lake.commit(
        before,
        written_by=written_by,
        position=str(position),
        source=source,
        tables=before.with_files("attempts", files),
        notes={**before.notes, **notes},
    )
