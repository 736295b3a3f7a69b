"""Exports the attempts that were finished since the last run to the lake."""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from django_pgqueue.spark.errors import NOT_STARTED, InvalidOption
from django_pgqueue.spark.lake import Lake
from django_pgqueue.spark.lake.cleanup import tidy
from django_pgqueue.spark.lake.compaction import compact
from django_pgqueue.spark.lake.data_files import clear, publish, stage
from django_pgqueue.spark.lake.direct_export import fill
from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.lake.files import LocalFiles
from django_pgqueue.spark.lake.kept_columns import KeptColumns
from django_pgqueue.spark.options import PipelineOptions, camel_case
from django_pgqueue.spark.pipeline.known_position import KnownPosition
from django_pgqueue.spark.pipeline.progress import Quiet
from django_pgqueue.spark.pipeline.source_database import position_of, writing
from django_pgqueue.spark.reader import PgQueueReader
from django_pgqueue.spark.schema import ATTEMPTS, chosen
from django_pgqueue.spark.source import registered
from django_pgqueue.spark.stream import PgQueueStreamReader

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from django_pgqueue.spark.lake import DataFile, Manifest
    from django_pgqueue.spark.lake.data_files import StagedFiles
    from django_pgqueue.spark.pipeline.known_position import Missed
    from django_pgqueue.spark.pipeline.progress import Progress
    from django_pgqueue.spark.pipeline.source_database import Origin

MAX_STARTS = 3
USABLE = frozenset(
    {
        *("credentials", "replica_variable", "url", "url_variable"),
        *("max_connections", "max_rows_per_batch", "num_partitions", "to_transaction"),
        *("columns", "mask", "mask_key_variable"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    rows: int
    files: int
    bytes: int
    version: int
    """Version of the lake's manifest."""
    missed: Missed | None = None
    """The gap that the lake has had since the last run: attempts that retention dropped before they were exported."""


def export(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Adds each attempt that has been finished since the last export to the lake, once, in pieces of about
    ``maxRowsPerBatch`` rows: what a killed run has made visible, the next one does not repeat.

    ``options`` are those of the data source ``pgqueue``, such as ``urlVariable``.  If an attempt's
    transaction, or an older one, has not ended yet, the next run exports it.

    >>> export(spark, "/data/jobs").rows  # doctest: +SKIP
    250000
    """
    progress, options = progress or Quiet(), options or {}
    check(options)
    lake = Lake.open_or_make(spark, path)
    with writing(lake, options) as origin:
        run = Run(lake, origin, options, "export", progress)
        files, end = [], run.next_end()
        for piece in pieces(run, end):
            files += run.advance(piece)
            progress.step(f"exported {sum(file.rows for file in files):,} attempts")
        if not files:
            run.advance(end)  # the position says that there is nothing before it
            run.tell_what_holds_back()
        progress.step("compacting")
        manifest = compact(lake, f"{run_name()}-compact")
        tidy(lake)
        return Exported(
            rows=sum(file.rows for file in files),
            files=len(files),
            bytes=sum(file.bytes for file in files),
            version=manifest.version,
            missed=run.missed,
        )


def check(options: Mapping[str, str]) -> None:
    """Refuses options that would leave out rows: the position of a lake says that it has all of them."""
    parsed = PipelineOptions.of(options)
    for field in fields(parsed):
        if field.name not in USABLE and getattr(parsed, field.name) != field.default:
            message = (
                f"Option {camel_case(field.name)} cannot be used by export and follow: a lake has all attempts. Leave "
                "the option out, and select rows when you read the lake (read_lake)."
            )
            raise InvalidOption(message)
    KeptColumns.asked(parsed)


class Run:
    """A run that adds to a lake.  Export and follow have only this way into it."""

    def __init__(
        self, lake: Lake, origin: Origin, options: Mapping[str, str], written_by: str, progress: Progress
    ) -> None:
        self.lake = lake
        self.origin = origin
        self.options = options
        self.written_by = written_by
        self.progress = progress
        self.known = KnownPosition(lake, options, progress)
        self.missed: Missed | None = None
        """The gap that this run has found."""
        self.told = ""
        manifest = lake.manifest()
        origin.next_position(manifest)
        self.columns = KeptColumns.decided(manifest, PipelineOptions.of(options))
        self._notice(manifest, self.known.begin(position_of(manifest)))

    def next_end(self) -> int:
        """Returns how far the lake can follow the history now; with ``toTransaction`` no further than there."""
        manifest = self.lake.manifest()
        end, limit = self.origin.next_position(manifest), PipelineOptions.of(self.options).to_transaction
        return end if limit is None else max(position_of(manifest), min(end, limit))

    def advance(self, end: int) -> list[DataFile]:
        """Adds the rows of the transactions before ``end``, and moves the position there, if PostgreSQL and the files
        have the same rows.
        """
        before, run = self.lake.manifest(), run_name()
        start = position_of(before)
        cut = {**self.options, **self.columns.options(), "fromTransaction": str(start), "toTransaction": str(end)}
        self.progress.step("reading the history")
        staged = patiently(lambda: gathered(self.lake, cut, run), self.progress)
        verify(self.origin, staged, start, end)
        self.progress.step("making it visible")
        files = publish(self.lake, staged)
        recorded, missed = self.columns.changes(), self.missed.attempts if self.missed else 0
        notes = {"missed": max(before.notes.get("missed", 0), missed)} if missed else {}
        after = self.lake.commit(
            before,
            written_by=self.written_by,
            position=str(end),
            source=self.origin.identity(),
            tables=before.with_files("attempts", files),
            schema_version=recorded["schema_version"],
            notes={**before.notes, **recorded["notes"], **notes},
        )
        self._notice(after, self.known.move(end))
        clear(self.lake, run)
        return files

    def tell_what_holds_back(self) -> None:
        """Names the transaction that nothing comes past: once, as long as it is the same."""
        words = self.origin.held_back(self.origin.horizon())
        if words is not None and (holder := words.partition(",")[0]) != self.told:
            self.told = holder
            self.progress.say(words)

    def _notice(self, manifest: Manifest, missed: Missed) -> None:
        """Says once that retention has dropped what the lake lacks.  The next manifest knows that it was said."""
        said = max(manifest.notes.get("missed", 0), self.missed.attempts if self.missed else 0)
        if missed.attempts > said:
            self.missed = missed
            self.progress.say(gap(missed, missed.attempts - manifest.notes.get("missed", 0)))


def pieces(run: Run, end: int) -> Iterator[int]:
    """Yields the ends of the pieces up to ``end``, each when the piece before it is in the lake.  A piece has about
    ``maxRowsPerBatch`` rows at most, or those of one transaction.
    """
    reader = PgQueueStreamReader(PipelineOptions.of(run.options), ATTEMPTS)
    reader.target = end
    begin = position_of(run.lake.manifest())
    while (found := reader.latest(begin, reader.options.max_rows_per_batch)) != begin:
        yield found
        begin = found


def patiently(gather: Callable[[], list[StagedFiles]], progress: Progress) -> list[StagedFiles]:
    """Gathers again when Spark waited in vain for a Python process: what was staged before does not count."""
    for _ in range(MAX_STARTS - 1):
        try:
            return gather()
        except Exception as error:
            if NOT_STARTED not in str(error):
                raise
            progress.say("Spark's Python process did not start in ten seconds; trying again")
    return gather()


def gap(missed: Missed, attempts: int) -> str:
    return (
        f"The lake has a gap: retention dropped {attempts:,} attempts of the days {missed.since} to {missed.until} "
        "before they were exported, and they are lost. Export more often, or set HISTORY_DAYS or LAKE_DAYS higher."
    )


def run_name() -> str:
    return f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def gathered(lake: Lake, cut: Mapping[str, str], run: str) -> list[StagedFiles]:
    """Stages the rows and columns that the options ``cut`` say."""
    if isinstance(lake.files, LocalFiles):
        options = PipelineOptions.of(cut)
        return fill(lake, PgQueueReader(options, chosen("attempts", options.columns)), run)
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
