"""Exports the attempts that were finished since the last run to the lake."""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from django_pgqueue.spark.errors import InvalidOption
from django_pgqueue.spark.lake import Lake
from django_pgqueue.spark.lake.cleanup import tidy
from django_pgqueue.spark.lake.compaction import compact
from django_pgqueue.spark.lake.data_files import clear, publish, stage
from django_pgqueue.spark.lake.direct_export import fill
from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.lake.files import LocalFiles
from django_pgqueue.spark.options import PipelineOptions, camel_case
from django_pgqueue.spark.pipeline.progress import Quiet
from django_pgqueue.spark.pipeline.source_database import position_of, writing
from django_pgqueue.spark.reader import PgQueueReader
from django_pgqueue.spark.schema import ATTEMPTS
from django_pgqueue.spark.source import registered

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from django_pgqueue.spark.lake import DataFile
    from django_pgqueue.spark.lake.data_files import StagedFiles
    from django_pgqueue.spark.pipeline.progress import Progress
    from django_pgqueue.spark.pipeline.source_database import Origin

USABLE = frozenset(
    {
        *("credentials", "replica_variable", "url", "url_variable"),
        *("max_connections", "max_rows_per_batch", "num_partitions", "to_transaction"),
    }
)


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
    progress, options = progress or Quiet(), options or {}
    check(options)
    lake = Lake.open_or_make(spark, path)
    with writing(lake, options) as origin:
        files = advance(lake, origin, options, next_end(lake, origin, options), "export", progress)
        progress.step("compacting")
        manifest = compact(lake, f"{run_name()}-compact")
        tidy(lake)
        return Exported(
            rows=sum(file.rows for file in files),
            files=len(files),
            bytes=sum(file.bytes for file in files),
            version=manifest.version,
        )


def check(options: Mapping[str, str]) -> None:
    """Refuses options that would leave out rows or columns: the position of a lake says that it has all of them."""
    parsed = PipelineOptions.of(options)
    for field in fields(parsed):
        if field.name not in USABLE and getattr(parsed, field.name) != field.default:
            message = (
                f"Option {camel_case(field.name)} cannot be used by export and follow: a lake has all attempts, with "
                "all columns. Leave the option out, and select rows and columns when you read the lake (read_lake)."
            )
            raise InvalidOption(message)


def next_end(lake: Lake, origin: Origin, options: Mapping[str, str]) -> int:
    """Returns how far the lake can follow the history now; with ``toTransaction`` no further than there."""
    manifest = lake.manifest()
    end, limit = origin.next_position(manifest), PipelineOptions.of(options).to_transaction
    return end if limit is None else max(position_of(manifest), min(end, limit))


def advance(  # noqa: PLR0917
    lake: Lake, origin: Origin, options: Mapping[str, str], end: int, written_by: str, progress: Progress
) -> list[DataFile]:
    """Adds the rows of the transactions before ``end``, and moves the position there, if PostgreSQL and the files have
    the same rows.  Export and follow have only this way into the lake.
    """
    before, run = lake.manifest(), run_name()
    progress.step("reading the history")
    staged = gathered(lake, options, position_of(before), end, run)
    verify(origin, staged, position_of(before), end)
    progress.step("making it visible")
    files = publish(lake, staged)
    lake.commit(
        before,
        written_by=written_by,
        position=str(end),
        source=origin.identity(),
        tables=before.with_files("attempts", files),
    )
    clear(lake, run)
    return files


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
