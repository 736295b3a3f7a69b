"""Exports the attempts that were finished since the last run to the lake."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from django_pgqueue.spark.errors import NOT_STARTED, HistoryReplaced, InvalidOption, told
from django_pgqueue.spark.lake import Lake
from django_pgqueue.spark.lake.data_files import fill
from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.lake.kept_columns import KeptColumns
from django_pgqueue.spark.lake.schema import HISTORY
from django_pgqueue.spark.lake.upkeep import compact, vacuum
from django_pgqueue.spark.options import PipelineOptions, camel_case
from django_pgqueue.spark.pipeline.known_position import KnownPosition
from django_pgqueue.spark.pipeline.overlap import overlap
from django_pgqueue.spark.pipeline.source_database import origin_of
from django_pgqueue.spark.progress import Progress
from django_pgqueue.spark.reader import PgQueueReader
from django_pgqueue.spark.schema import ATTEMPTS
from django_pgqueue.spark.snapshot import make_durable
from django_pgqueue.spark.stream import PgQueueStreamReader

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from django_pgqueue.spark.lake import DataFile, Version
    from django_pgqueue.spark.lake.data_files import Counted
    from django_pgqueue.spark.pipeline.known_position import Missed
    from django_pgqueue.spark.pipeline.source_database import Origin

MAX_STARTS = 3
GONE_BACK = (
    "PostgreSQL has recorded that this lake came to transaction {recorded}, and it is at {position}: it was restored "
    "from a backup, or is one of two copies. It goes on from there, and lacks the days that retention has dropped "
    "meanwhile. Retention waits for the copy that was exported last: export only one."
)
BETWEEN = "transaction_id >= {start} and transaction_id < {end}"
ENDED = f"message_id in (select message_id from pgqueue_attempt where final and {BETWEEN})"  # noqa: S608
OF_ENDED = {"steps": ENDED, "approvals": f"decided_at is not null and {ENDED}"}
"""Rows of messages whose last attempt is among those of some transactions.  Nobody can decide what is still open."""
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
    """Version of the table of attempts."""
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
    progress, options = progress or Progress(), options or {}
    check(options)
    lake = Lake.open_or_new(spark, path)
    with origin_of(lake, options) as origin:
        run = Run(lake, origin, options, "export", progress)
        files, end = [], run.next_end()
        for piece in pieces(run, end):
            files += run.advance(piece)
            progress.step(f"exported {sum(file.rows for file in files):,} attempts")
        if not files:
            make_durable(origin.connection)
            run.advance(end)  # the position says that there is nothing before it
            run.tell_what_holds_back()
        progress.step("compacting")
        compact(lake)
        vacuum(lake)
        return Exported(
            rows=sum(file.rows for file in files),
            files=len(files),
            bytes=sum(file.bytes for file in files),
            version=lake.version().number,
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
        parsed = PipelineOptions.of(options)
        origin.require_queue()
        if not lake.exists:
            columns = KeptColumns.asked(parsed)
            lake.make(columns.schema(), {"pgqueue.source": origin.identity(), **columns.settings()})
        version = lake.version()
        self.compared: int | None = None
        """The record that was behind the lake, and whose attempts are the same."""
        self._next_position(version)
        for table in HISTORY:
            lake.refuse_restored(version, table)
        self.columns = KeptColumns.decided(version, parsed)
        lake.widen("attempts", self.columns.schema())
        self._notice(version, self.known.begin(version.position))

    def next_end(self) -> int:
        """Returns how far the lake can follow the history now; with ``toTransaction`` no further than there."""
        version = self.lake.version()
        end, limit = self._next_position(version), PipelineOptions.of(self.options).to_transaction
        return end if limit is None else max(version.position, min(end, limit))

    def _next_position(self, version: Version) -> int:
        """Returns how far the lake can follow the history; raises an error if the server has lost what the lake has.

        A server that goes back in time takes its record of the lake back with it, and reaches the position of the lake
        again, with other attempts.  A run that was killed behind its commit leaves such a record too, and no others.
        A lake that was forgotten has the record 0.
        """
        end, recorded = self.origin.next_position(version), self.origin.recorded(version.lake_id)
        if recorded is None:
            return end
        position, day = recorded
        # The lake is asked once more only then: another run may have moved both.
        if position > version.position and position > (now := self.lake.version().position):
            self.progress.say(GONE_BACK.format(recorded=position, position=now))
        if position >= version.position or position == self.compared:
            return end
        self.progress.step("comparing the lake with the database")
        last = day or max((file.date for file in version.files()), default=None)
        since = last and last - dt.timedelta(days=1)
        found = overlap(self.lake, version, self.options, since=since, position=position)
        if found.different or found.lost or found.is_behind:
            message = (
                f"The lake has followed the history up to transaction {version.position}. PostgreSQL has recorded "
                f"{position}, and the attempts from there on are not the same. {found.remedy}"
            )
            raise HistoryReplaced(message)
        self.compared = position
        return end

    def advance(self, end: int) -> list[DataFile]:
        """Adds the rows of the transactions before ``end``, and moves the position there, if PostgreSQL and the files
        have the same rows.  Returns no files if another run has come there first.
        """
        version = self.lake.version()
        start = version.position
        if end < start:
            return []
        self._next_position(version)  # another run may have moved it
        for table in OF_ENDED:
            self._add_of_ended(table, start, end)
        self.progress.step("reading the history")
        cut = {"fromTransaction": str(start), "toTransaction": str(end)}
        files = self._written("attempts", cut, BETWEEN.format(start=start, end=end), end)
        self.progress.step("making it visible")
        missed = self.missed.attempts if self.missed else 0
        if not self.lake.advance(start, end, files, missed=missed, run=self._about(start, end)):
            self.progress.say("another run has added these attempts; going on after it")
            return []
        self._notice(self.lake.version(), self.known.move(end))
        return files

    def _add_of_ended(self, table: str, position: int, end: int) -> None:
        """Adds the rows of messages that have ended before ``end``.  Nothing adds to them or changes them any more.

        They come before the attempts: a run that is killed in between leaves this table ahead of them, and the next one
        goes on there.
        """
        while self.origin.has(table):
            seen = self.lake.position(table)
            # Where there are no such rows, only the attempts have moved.
            if (start := max(seen, position) if seen else 0) >= end:
                return
            condition = OF_ENDED[table].format(start=start, end=end)
            if seen and not self.origin.count(table, condition)[0]:
                return
            self.progress.step(f"reading {table}")
            self.lake.widen(table, self.columns.schema(table))
            files = self._written(table, {"where": condition}, condition, end)
            if self.lake.advance(seen, end, files, name=table, run=self._about(start, end)):
                return

    def _written(self, table: str, cut: Mapping[str, str], condition: str, end: int) -> list[DataFile]:
        """Writes rows into files that no commit names yet, if PostgreSQL counts the same rows by the condition.  They
        are of transactions before ``end``, which a replica is waited for.
        """
        options = {**self.options, **self.columns.options(table), **cut}
        reader = PgQueueReader(PipelineOptions.of(options), self.columns.schema(table), reached=end)
        with told():
            counted = patiently(lambda: fill(self.lake, reader), self.progress)
        verify(self.origin, table, counted, condition)
        return [file for file, _ in counted]

    def _about(self, start: int, end: int) -> dict[str, object]:
        return {"written_by": self.written_by, "from_transaction": start, "to_transaction": end}

    def tell_what_holds_back(self) -> None:
        """Names the transaction that nothing comes past: once, as long as it is the same."""
        words = self.origin.held_back(self.origin.horizon())
        if words is not None and (holder := words.partition(",")[0]) != self.told:
            self.told = holder
            self.progress.say(words)

    def _notice(self, version: Version, missed: Missed) -> None:
        """Says once that retention has dropped what the lake lacks.  The next commit records that it was said."""
        said = max(version.missed, self.missed.attempts if self.missed else 0)
        if missed.attempts > said:
            self.missed = missed
            self.progress.say(gap(missed, missed.attempts - version.missed))


def pieces(run: Run, end: int) -> Iterator[int]:
    """Yields the ends of the pieces up to ``end``, each when the piece before it is in the lake.  A piece has about
    ``maxRowsPerBatch`` rows at most, or those of one transaction.
    """
    reader = PgQueueStreamReader(PipelineOptions.of(run.options), ATTEMPTS)
    reader.target = end
    # The lake is asked each time: another run may have come further.
    while (begin := run.lake.version().position) < end:
        if (found := reader.latest(begin, reader.options.max_rows_per_batch)) == begin:
            return
        yield found


def patiently(gather: Callable[[], list[Counted]], progress: Progress) -> list[Counted]:
    """Gathers again when Spark waited in vain for a Python process: what was written before does not count."""
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


def verify(origin: Origin, table: str, files: list[Counted], condition: str) -> None:
    """Checks that the files have the rows of the table: PostgreSQL counts them, not the code that wrote the files."""
    rows, ids = origin.count(table, condition)
    if (rows, ids) != (sum(file.rows for file, _ in files), sum(ids for _, ids in files)):
        message = (
            f"The files have {sum(file.rows for file, _ in files)} rows of {table}, PostgreSQL {rows}, or different "
            f"ones ({condition}). Nothing was made visible. Check whether partitions were dropped in the meantime, and "
            "run the export again."
        )
        raise LakeError(message)
