"""Drivers, as processes of their own: ``python -m tests.spark.programs NAME MASTER ARGUMENT...``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django_pgqueue.spark import pipeline, session as sessions_of_spark
from django_pgqueue.spark.lake import LakeError, read_lake
from tests.spark.quick import QUICK_CLUSTER
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEND = "shop.tasks.send"
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
"""Of drivers, and of the daemons of a cluster."""


def start(
    program: str, master: str, *arguments: object, url: str, log: Path | None = None, **environment: str
) -> subprocess.Popen[str]:
    """In a process group of its own, so that the driver and its JVM can be killed together.

    With ``log`` standard error is added to a file: who is tormented has more to say than a pipe holds.
    """
    with log.open("a") if log is not None else nullcontext(subprocess.PIPE) as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.programs", program, master, *map(str, arguments)],
            env={**os.environ, **ENVIRONMENT, "DATABASE_URL": url, **environment},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def kill(process: subprocess.Popen[str]) -> None:
    """As the kernel does it: driver, JVM, and the tasks in it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def answer(process: subprocess.Popen[str], seconds: float = 600) -> Any:
    """What the program prints last, as JSON."""
    try:
        printed, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill(process)
        raise
    assert process.returncode == 0, without_java(errors or "see the log")[-10_000:]
    return json.loads(printed.strip().splitlines()[-1])


def without_java(errors: str) -> str:
    """The lines of a program's errors, without the traces of Java, behind which its own would not be seen."""
    return "\n".join(line for line in errors.splitlines() if not line.startswith("\tat "))


def executors(*ancestors: int) -> list[int]:
    """The processes that run tasks for these processes, on this machine."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return sorted(executor for executor in found if set(ancestors) & lineage(executor, parents))


def lineage(process: int, parents: dict[int, int]) -> set[int]:
    line = set()
    while process := parents.get(process, 0):
        line.add(process)
    return line


def calls(spark: SparkSession, rows: int, partitions: int = 2) -> DataFrame:
    return spark.range(rows, numPartitions=partitions).selectExpr(f"'{SEND}' as task", "to_json(array(id)) as args")


def round_trip(spark: SparkSession, folder: str) -> dict[str, Any]:
    """What the source can do, in one driver: reads, follows, writes."""
    history = spark.read.format("pgqueue").option("columns", "message_id,queue").option("numPartitions", 3).load()
    calls(spark, 300, 3).write.format("pgqueue").options(tasks=SEND, runId="round trip").mode("append").save()
    catch_up(spark, folder)
    return steps(spark, folder) | {
        "history": sorted(row[0] for row in history.collect()),
        "lake": sorted(row[0] for row in spark.read.parquet(f"{folder}/lake").collect()),
        "executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
    }


def steps(spark: SparkSession, folder: str) -> dict[str, Any]:
    """The pipeline, from the history to a report."""
    lake = f"{folder}/jobs"
    exported = pipeline.export(spark, lake).rows
    pipeline.follow(spark, lake, once=True)
    reported = pipeline.report(spark, lake).rows
    return {"exported": exported, "reported": reported, "ids": ids(spark, lake)}


def ids(spark: SparkSession, lake: str) -> list[int]:
    return sorted(row[0] for row in read_lake(spark, lake).select("id").collect())


def keep_up(spark: SparkSession, lake: str, enough: str) -> dict[str, Any]:
    """Exports and follows in turns until there is a file ``enough``, and once more; it adopts what was renamed."""
    print("ready", flush=True)
    turns, last = 0, False
    while not last:
        last = Path(enough).exists()
        try:
            pipeline.export(spark, lake)
        except LakeError as error:
            if "--adopt" not in str(error):
                raise
            pipeline.adopt(spark, lake)
            pipeline.export(spark, lake)
        pipeline.follow(spark, lake, once=True)
        turns += 1
    return {"turns": turns}


def go_on(spark: SparkSession, lake: str, rows: str) -> dict[str, Any]:
    """Exports until it is killed."""
    while True:
        pipeline.export(spark, lake, options={"maxRowsPerBatch": rows})


def catch_up(spark: SparkSession, folder: str) -> None:
    stream = spark.readStream.format("pgqueue").option("columns", "message_id").load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", f"{folder}/lake")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def enqueue(spark: SparkSession, run_id: str, rows: str, partitions: str) -> dict[str, Any]:
    print("ready", flush=True)
    frame = calls(spark, int(rows), int(partitions))
    frame.write.format("pgqueue").options(tasks=SEND, runId=run_id).mode("append").save()
    return {}


def enqueue_on(spark: SparkSession, first: str, rows: str, enough: str) -> dict[str, Any]:
    """Run after run from the first on, until there is a file ``enough``, with tasks that fail and tasks that dawdle."""

    def unlucky(taken: Any) -> Any:
        import random
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        fate = random.random() if context is not None and context.attemptNumber() < 3 else 1.0
        if fate < 0.1:
            time.sleep(2)  # long enough for Spark to begin the same elsewhere
        for number, row in enumerate(taken):
            if number > 100 and 0.1 <= fate < 0.25:
                message = "injected"
                raise RuntimeError(message)
            yield row

    number = int(first)
    print("ready", flush=True)
    while not Path(enough).exists():
        frame = spark.range(int(rows), numPartitions=6).selectExpr(
            f"'{SEND}' as task", f"to_json(array({number}, id)) as args"
        )
        frame = spark.createDataFrame(frame.rdd.mapPartitions(unlucky), frame.schema)
        frame.write.format("pgqueue").options(tasks=SEND, runId=f"run {number}").mode("append").save()
        number += 1
    return {"runs": number}


def speculate(spark: SparkSession, rows: str) -> dict[str, Any]:
    """One task waits until it has run a second time elsewhere, then both go on."""
    marks = Path(os.environ["PGQUEUE_TEST_MARKS"])

    def hesitate(taken: Any) -> Any:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.partitionId() == 0:
            (marks / str(context.attemptNumber())).touch()
            deadline = time.monotonic() + 60
            while len(list(marks.iterdir())) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
        yield from taken

    frame = calls(spark, int(rows), 4)
    frame = spark.createDataFrame(frame.rdd.mapPartitions(hesitate), frame.schema)
    frame.write.format("pgqueue").options(tasks=SEND).mode("append").save()
    return {"tries": sorted(path.name for path in marks.iterdir())}


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


def main(program: str, master: str, *arguments: str) -> None:
    programs = (round_trip, enqueue, keep_up, go_on, enqueue_on, speculate)
    run: Any = {function.__name__: function for function in programs}[program]
    configuration = QUICK_CLUSTER | (SPECULATION if program in {"speculate", "enqueue_on"} else {})
    if program == "keep_up":  # the database gets another name, and workers of a cluster have the first one
        configuration |= {"spark.executorEnv.DATABASE_URL": os.environ["DATABASE_URL"], "spark.cores.max": "1"}
    spark = sessions_of_spark.start(program, master=master, configuration=configuration)
    answered = run(spark, *arguments)
    print(json.dumps(answered), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
