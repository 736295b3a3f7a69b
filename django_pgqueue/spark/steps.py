"""The steps of the command line: each calls the pipeline and prints the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django_pgqueue.spark import database, pipeline, session
from django_pgqueue.spark.errors import NothingEnqueued, told
from django_pgqueue.spark.lake import convert as convert_lake, upkeep
from django_pgqueue.spark.lake.errors import LakeError
from django_pgqueue.spark.lake.lake import Lake
from django_pgqueue.spark.lake.place import Place
from django_pgqueue.spark.options import PipelineOptions

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import SparkSession

    from django_pgqueue.spark.progress import Progress

Say = Callable[[str], None]
KEEP_DAYS = 30
OF_LAKES = frozenset({"check", "convert", "erase", "whatif"})
"""Steps that need no PostgreSQL."""
SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def run(spark: SparkSession, asked: Namespace, *, options: Mapping[str, str], say: Say, progress: Progress) -> None:
    """Runs one step.  An error of this package becomes a SparkQueueError with a message for people."""
    common = {"options": given(asked, options), "progress": progress}
    with told():
        STEPS[asked.step](spark, asked, common, say)


def check_address(asked: Namespace, options: Mapping[str, str]) -> None:
    """Raises an error about an option, or an address that cannot be used, before Spark starts for it."""
    session.refuse_connect(asked.master, dict(asked.conf))
    if asked.step not in OF_LAKES:
        with told():
            database.reading(PipelineOptions.of(given(asked, options)))


def given(asked: Namespace, options: Mapping[str, str]) -> dict[str, str]:
    rows = {"maxRowsPerBatch": str(asked.max_rows)} if getattr(asked, "max_rows", None) else {}
    return {**options, **dict(asked.option), **rows}


def export(spark: SparkSession, asked: Namespace, common: dict[str, Any], say: Say) -> None:
    if asked.adopt:
        same = pipeline.adopt(spark, asked.lake, **common).same
        say(f"adopted this database: {same:,} of its attempts are in the lake")
    done = pipeline.export(spark, asked.lake, **common)
    files = f"{size(done.bytes)} in {done.files:,} files"
    say(f"exported {done.rows:,} attempts, {files}; the lake is at version {done.version}")
    if asked.drop_exported:
        dropped = pipeline.drop_exported(spark, asked.lake, keep_days=asked.keep_days or KEEP_DAYS, **common)
        say(f"dropped {len(dropped.days)} days: {', '.join(map(str, dropped.days)) or 'none is old enough'}")
        for day, reason in dropped.kept.items():
            say(f"kept {day}: {reason}")


def follow(spark: SparkSession, asked: Namespace, common: dict[str, Any], say: Say) -> None:
    rows = pipeline.follow(spark, asked.lake, seconds=asked.seconds, once=asked.once, **common)
    say(f"added {rows:,} attempts")


def forget(spark: SparkSession, asked: Namespace, common: dict[str, Any], say: Say) -> None:
    known = 0
    with suppress(LakeError):  # an earlier release wrote where this one would not
        known = pipeline.forget(Place.of(asked.lake, spark).url, common["options"])
    known = known or pipeline.forget(str(asked.lake), common["options"])
    say(f"forgot {asked.lake}" if known else f"PostgreSQL knows no lake with the location or id {asked.lake}")


def report(spark: SparkSession, asked: Namespace, common: dict[str, Any], say: Say) -> None:
    done = pipeline.report(
        spark, asked.lake, since=asked.since, until=asked.until, targets=dict(asked.target), **common
    )
    say(f"reported {done.since} to {done.until}: {', '.join(f'{rows:,} x {name}' for name, rows in done.rows.items())}")
    for line in done.quality.lines():
        say(f"  {line}")


def replay(spark: SparkSession, asked: Namespace, common: dict[str, Any], say: Say) -> None:
    done = pipeline.replay(
        spark,
        asked.lake,
        asked.where,
        since=asked.since,
        until=asked.until,
        dry_run=asked.dry_run,
        again=asked.again,
        **common,
    )
    new = done.messages - done.again
    for row in done.preview:
        say("  ".join(f"{name}={value}" for name, value in row.items() if value is not None))
    if len(done.preview) < new:
        say(f"… and {new - len(done.preview):,} more")
    before = f", {done.again:,} were enqueued again before" if done.again else ""
    say(f"{done.messages:,} messages selected{before}; {new if done.enqueued else 0:,} enqueued ({done.run_id})")
    if done.messages and not new and not asked.dry_run:
        message = (
            "Nothing was enqueued: all selected messages were enqueued again before. To enqueue them once more, give "
            "this replay a name: --again WORD."
        )
        raise NothingEnqueued(message)


def check(spark: SparkSession, asked: Namespace, common: dict[str, Any], say: Say) -> None:  # noqa: ARG001
    files = pipeline.check(spark, asked.lake)
    say(f"{files:,} files, all there")


def convert(spark: SparkSession, asked: Namespace, common: dict[str, Any], say: Say) -> None:  # noqa: ARG001
    say(f"converted {convert_lake(spark, asked.lake):,} files")


def erase(spark: SparkSession, asked: Namespace, common: dict[str, Any], say: Say) -> None:  # noqa: ARG001
    say(f"erased {upkeep.erase(Lake.open(spark, asked.lake), asked.where):,} attempts")


def whatif(spark: SparkSession, asked: Namespace, common: dict[str, Any], say: Say) -> None:
    limits = {"queues": asked.queue, "since": asked.since, "until": asked.until, "progress": common["progress"]}
    scenarios = [
        pipeline.Scenario(slots=slots, load=load, channel_limit=asked.channel_limit)
        for load in asked.load
        for slots in asked.slots
    ]
    say(f"{'scenario':36} {'p50':>10} {'p95':>10} {'p99':>10} {'longest':>10} {'utilised':>9}")
    for found in pipeline.whatif(spark, asked.lake, scenarios, **limits):
        waits = (found.wait_p50_ms, found.wait_p95_ms, found.wait_p99_ms, found.longest_ms)
        say(f"{found.scenario!s:36} {' '.join(f'{span(ms):>10}' for ms in waits)} {found.utilisation:9.0%}")
    if asked.within is not None:
        needed = pipeline.needed(
            spark, asked.lake, within=asked.within, share=asked.share / 100, loads=asked.load, **limits
        )
        for load, slots in needed.items():
            words = "more than can be simulated" if slots is None else f"{slots} slots"
            say(f"load x {load:g}: {asked.share:g} % start within {asked.within:g} s with {words}")


STEPS: Mapping[str, Callable[[SparkSession, Namespace, dict[str, Any], Say], None]] = {
    "export": export,
    "follow": follow,
    "forget": forget,
    "check": check,
    "convert": convert,
    "erase": erase,
    "report": report,
    "replay": replay,
    "whatif": whatif,
}


def span(ms: float) -> str:
    """
    >>> span(12.3), span(2500), span(7200000)
    ('12 ms', '2.5 s', '120.0 min')
    """
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 120_000 else f"{ms / 60_000:.1f} min"


def size(number: int) -> str:
    """
    >>> size(100), size(1536)
    ('100 bytes', '1.5 kB')
    """
    unit, name = next(((unit, name) for unit, name in SIZES if number >= unit), (1, "bytes"))
    return f"{number / unit:.1f} {name}" if unit > 1 else f"{number} {name}"
