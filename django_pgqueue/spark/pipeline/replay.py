"""Enqueues finished messages of the lake again."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812

from django_pgqueue.spark import database
from django_pgqueue.spark.lake import Lake, LakeError
from django_pgqueue.spark.lake.kept_columns import KeptColumns
from django_pgqueue.spark.lake.reading import read_files
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.pipeline.overlap import DAY_US
from django_pgqueue.spark.progress import Progress
from django_pgqueue.spark.session import same_environment
from django_pgqueue.spark.source import registered
from django_pgqueue.values.limits import MAX_STORED_BYTES

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

PREVIEWED = 10
REPLAYED = "select message_id from pgqueue_replayed where replay = %s and message_id = any(%s)"
COPIED = ("content", "headers", "task", "channel")
"""Columns that a message is made of, and that a lake may lack or have as masks."""
RECORDED = ("message_id", "final", "status", "attempt", "created_at", "finished_at", "error_class")
UNIQUE_KEY = "unique_key"
READ = (*COPIED, UNIQUE_KEY, "queue", "priority", "max_attempts", *RECORDED)
TASKS = 8
"""Number of parts of a selection, always cut in the same way by the ids: a second run must find its own parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    messages: int
    run_id: str
    """Computed from the messages that are enqueued: a run that was killed can be repeated."""
    again: int
    """How many of the selected messages were enqueued again before, and are not enqueued now."""
    preview: tuple[Mapping[str, Any], ...]
    enqueued: bool


def replay(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: str,
    *,
    since: dt.date | None = None,
    until: dt.date | None = None,
    dry_run: bool = False,
    again: str = "",
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Enqueues messages again whose last attempt fulfils ``where``: a condition in Spark SQL on the lake's columns.

    Each message is enqueued once, even when a run is killed and repeated, or when another selection has it too.
    Another word in ``again`` makes it another replay.  The new messages have the ids of the old ones in their headers,
    as ``enqueued_again_from``.

    >>> replay(spark, "/data/jobs", "status = 'failed' and task = 'shop.tasks.send_receipt'")  # doctest: +SKIP
    """
    progress = progress or Progress()
    progress.step("selecting")
    same_environment(spark, PipelineOptions.of(options or {}))
    lake = Lake.open(spark, path)
    version = lake.version()
    kept = KeptColumns.of(version)
    kept.require(COPIED, "A replay")
    names = {*READ, *asked(spark.createDataFrame([], kept.schema()), where)}
    columns = [name for name in kept.names if name in names]
    found = selected(read_files(lake, "attempts", version.files(since=since, until=until), columns), where)
    rows = found.select("message_id", wants_results(), first_day(found)).collect()
    every = sorted(row["message_id"] for row in rows)
    name = f"replay {again}".strip()
    before = replayed(name, every, options or {})
    ids = [message_id for message_id in every if message_id not in before]
    refuse_wanted_results(sorted(row["message_id"] for row in rows if row["wants"] and row["message_id"] not in before))
    chosen = without(found, before)
    run_id = f"replay-{fingerprint(ids, again)}"
    preview = tuple(row.asDict() for row in shown(chosen).limit(PREVIEWED).collect())
    if ids and not dry_run:
        progress.step(f"enqueuing {len(ids):,} messages")
        first = min(row["day"] for row in rows if row["message_id"] not in before)
        files = version.files(since=dt.date(1970, 1, 1) + dt.timedelta(days=max(0, first - 1)))  # clocks may go back
        attempts = read_files(lake, "attempts", files, ("message_id", "status", "task"))
        enqueue(messages(without_added(chosen, attempts)), run_id, name, options or {})
    return Replayed(
        messages=len(every),
        again=len(before),
        run_id=run_id,
        preview=preview,
        enqueued=bool(ids) and not dry_run,
    )


def asked(attempts: DataFrame, where: str) -> set[str]:
    """Returns the columns that a condition names: of a file in a store, Spark reads all that are not left out here."""
    names = selected(attempts, where)._jdf.queryExecution().analyzed().references().iterator()  # noqa: SLF001
    found = set()
    while names.hasNext():
        found.add(names.next().name())
    return found


def replayed(name: str, ids: list[int], options: Mapping[str, str]) -> set[int]:
    """Returns those of the messages that were enqueued again under this name."""
    with database.connect(database.writing(PipelineOptions.of(options))) as connection:
        return {message_id for (message_id,) in connection.execute(REPLAYED, (name, ids)).fetchall()}


def without(found: DataFrame, ids: set[int]) -> DataFrame:
    if not ids:
        return found
    known = found.sparkSession.createDataFrame([(message_id,) for message_id in ids], "message_id long")
    return found.join(F.broadcast(known), "message_id", "left_anti")


def selected(attempts: DataFrame, where: str) -> DataFrame:
    """Selects final rows only: for any other row the queue still has the message, or a later row has the end."""
    try:
        return attempts.where("final and content is not null").where(where)
    except (AnalysisException, ParseException) as error:
        reason = str(error).strip().splitlines()[0]
        message = f"The condition {where!r} cannot be used: {reason}"
        raise LakeError(message) from error


def wants_results() -> Column:
    return (F.get_json_object("headers", "$.after_results") == "true").alias("wants")


def first_day(found: DataFrame) -> Column:
    """Returns the day, counted from 1970-01-01, before which nobody has deferred the message."""
    # A debounce begins the time of a message that expires anew, and keeps its attempts.
    debounced = F.get_json_object("headers", "$.expires_us").isNotNull()
    if UNIQUE_KEY in found.columns:
        debounced &= F.col(UNIQUE_KEY).isNotNull()
    created = F.when(debounced, 0).otherwise(F.unix_micros("created_at"))
    return F.floor(created / DAY_US).alias("day")


def refuse_wanted_results(ids: Sequence[int]) -> None:
    """Raises an error if messages want the results of others: the lake does not know which these were."""
    if ids:
        message = (
            f"{len(ids):,} of the selected messages want the results of others, which a replay cannot give them; the "
            f"first is {ids[0]}. Nothing was enqueued. Enqueue those again in the admin, as long as PostgreSQL has "
            "them, and leave them out here: --where \"(…) and get_json_object(headers, '$.after_results') is null\"."
        )
        raise LakeError(message)


def without_added(chosen: DataFrame, attempts: DataFrame) -> DataFrame:
    """Takes off ``max_attempts`` what deferring, suspending, and losing a task had added, as *Enqueue again* does.

    So had a run from one of its steps, whose first attempt is the second.
    """
    uncounted = "status in ('deferred', 'suspended') or status = 'lost' and task is not null"
    of_chosen = attempts.where(uncounted).join(chosen.select("message_id"), "message_id", "left_semi")
    added = of_chosen.groupBy("message_id").agg(F.count(F.lit(1)).alias("added"))
    left = F.col("max_attempts") - F.coalesce("added", F.lit(0)) - F.when(is_from_step(), 1).otherwise(0)
    # Less than one: a server that went back has used the id twice.
    return (
        chosen.join(added, "message_id", "left")
        .withColumn("max_attempts", F.when(left < 1, 1).otherwise(left))
        .drop("added")
    )


def is_from_step() -> Column:
    """Whether the message ran from one of its steps.  What is enqueued again of it runs from the beginning."""
    return F.get_json_object("headers", "$.enqueued_from_step").isNotNull()


def fingerprint(ids: list[int], again: str) -> str:
    text = "\n".join([again, *map(str, ids)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def shown(chosen: DataFrame) -> DataFrame:
    return chosen.orderBy("message_id").select(
        "message_id",
        "status",
        "queue",
        "task",
        F.col("finished_at").cast("string"),  # in the time zone of the condition; Python's would be that of the machine
        "error_class",
        F.substring("content", 1, 80).alias("content"),
    )


def messages(chosen: DataFrame) -> DataFrame:
    """Returns the messages with the columns that the data source writes."""
    origin = F.to_json(F.struct(F.col("message_id").alias("enqueued_again_from")))
    # Joins the texts of two JSON objects: the lake's headers are an object as PostgreSQL writes it, or null.
    kept = F.regexp_replace(F.col("headers"), r"\}$", "")
    empty = F.col("headers").isNull() | (F.col("headers") == "{}")
    # Of two keys that are alike, jsonb keeps the last one.
    from_start = F.when(is_from_step(), ', "enqueued_from_step": null').otherwise("")
    joined = F.concat(kept, from_start, F.lit(", "), F.substring(origin, 2, 100))
    return chosen.select(
        "content",
        "task",
        "queue",
        "priority",
        "channel",
        F.when(F.col("task").isNull(), F.coalesce("max_attempts", F.lit(1)))  # null: no attempt after an error
        .otherwise(F.col("max_attempts"))
        .alias("max_attempts"),
        F.when(empty, origin).otherwise(joined).alias("headers"),
        "message_id",
    )


def enqueue(rows: DataFrame, run_id: str, name: str, options: Mapping[str, str]) -> None:
    registered(rows.sparkSession)
    parts = rows.repartition(TASKS, "message_id").sortWithinPartitions("message_id").drop("message_id")
    # The queue has taken these contents before, whatever its limit was.
    given = {"maxContentBytes": str(MAX_STORED_BYTES), **options, "runId": run_id, "replay": name, "tasks": "*"}
    parts.write.format("pgqueue").options(**given).mode("append").save()
