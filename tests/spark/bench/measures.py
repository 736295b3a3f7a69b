"""What is measured: one line a figure."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg

from django_pgqueue.spark import session
from tests.spark.bench import history
from tests.spark.bench.memory import Memory, Sample

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TASK = "shop.tasks.send_receipt"
TIMES = "queue,task,status,started_at,finished_at"
STATEMENT = """
    select date_trunc('hour', finished_at) as hour, queue, task, channel, count(*),
        count(*) filter (where status = 'failed') as failed, sum(attempt) filter (where final) as attempts,
        {wait_p50} as wait_p50, {run_p99} as run_p99
    from {table} group by 1, 2, 3, 4
"""
WAIT, RUN = "extract(epoch from started_at - created_at)", "extract(epoch from finished_at - started_at)"
IN_POSTGRESQL = STATEMENT.format(
    table="pgqueue_attempt",
    wait_p50=f"percentile_cont(0.5) within group (order by {WAIT})",
    run_p99=f"percentile_cont(0.99) within group (order by {RUN})",
)
IN_DUCKDB = STATEMENT.format(
    table="read_parquet('{files}', hive_partitioning = false)",
    wait_p50=f"quantile_cont({WAIT}, 0.5)",
    run_p99=f"quantile_cont({RUN}, 0.99)",
)


def run(asked: Namespace) -> None:
    url = prepared()
    with psycopg.connect(url, autocommit=True) as connection, tempfile.TemporaryDirectory() as folder:
        print(about(connection))
        if set(asked.only) - {"enqueue"} and not asked.filled:
            with measured("fill", asked.rows):
                history.fill(connection, asked.rows, days=asked.days, said=lambda _: None)
        lake = Path(folder, "lake")
        if {"export", "report"} & set(asked.only):
            with measured("export, from the start of the command to its end", asked.rows):
                pipeline("export", lake, asked)
        if "report" in asked.only:
            report(connection, lake, asked)
        if {"read", "enqueue"} & set(asked.only):
            spark = session.start("bench", master=asked.master, configuration={"spark.driver.memory": "2g"})
            for step in (read, enqueue):
                if step.__name__ in asked.only:
                    step(spark, connection, asked)
            spark.stop()


def prepared() -> str:
    """The server's URL, which executors find in their environment; its queue is empty."""
    import django
    from django.core.management import call_command

    django.setup()
    from django.conf import settings

    found: dict[str, Any] = settings.DATABASES["default"]
    url = "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**found)
    os.environ.setdefault("DATABASE_URL", url)
    call_command("migrate", verbosity=0)
    return os.environ["DATABASE_URL"]


def about(connection: psycopg.Connection) -> str:
    import pyspark

    [version] = connection.execute("show server_version").fetchone() or ["?"]
    load = "/".join(f"{number:.0f}" for number in os.getloadavg())
    words = [f"{os.cpu_count()} cores", f"load {load}", f"Python {platform.python_version()}"]
    return " · ".join([*words, f"PySpark {pyspark.__version__}", f"PostgreSQL {version}"])


@contextmanager
def measured(what: str, rows: int) -> Iterator[None]:
    begun = time.monotonic()
    yield
    seconds = time.monotonic() - begun
    print(f"{what:58} {seconds:8.1f} s {rows / seconds:12,.0f} rows/s", flush=True)


def read(spark: SparkSession, connection: psycopg.Connection, asked: Namespace) -> None:
    for columns in (None, TIMES):
        for number in range(asked.runs):
            frame = spark.read.format("pgqueue").options(**({"columns": columns} if columns else {})).load()
            what = f"read, {len(frame.columns)} columns" + (", the first time" if number == 0 else "")
            with measured(what, asked.rows):
                frame.write.format("noop").mode("overwrite").save()


def enqueue(spark: SparkSession, connection: psycopg.Connection, asked: Namespace) -> None:
    for what in ("enqueue, the first time", "enqueue"):
        connection.execute("truncate pgqueue_message, pgqueue_staged, pgqueue_ledger")
        rows = spark.range(asked.rows, numPartitions=2).selectExpr(f"'{TASK}' as task", "to_json(array(id)) as args")
        with measured(what, asked.rows):
            rows.write.format("pgqueue").options(tasks=TASK).mode("append").save()
        [found] = connection.execute("select count(*) from pgqueue_message").fetchone() or [0]
        assert found == asked.rows, found
    connection.execute("truncate pgqueue_message, pgqueue_staged, pgqueue_ledger")


def pipeline(step: str, lake: Path, asked: Namespace) -> None:
    """The command, and the most memory of each part of it that is worth ten million rows."""
    words = [sys.executable, "-m", "django_pgqueue.spark", step, "--lake", str(lake), "--master", asked.master]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    memory = Memory(process.pid)
    memory.start()
    said, _ = process.communicate()
    memory.stop()
    print(f"  {said.strip()}")
    for name in Sample._fields:
        peaks = [f"{getattr(part, name) / 2**30:.2f}" for part in memory.peaks(max(1, asked.rows // 10_000_000))]
        print(f"  memory, {name}: {', '.join(peaks)} GB")
    if process.returncode != 0:
        sys.exit(f"{step} failed")


def report(connection: psycopg.Connection, lake: Path, asked: Namespace) -> None:
    """The pipeline's report, and beside it what comes nearest in one statement of PostgreSQL and of DuckDB."""
    with measured("report of Spark: three tables, into the lake and PostgreSQL", asked.rows):
        pipeline("report", lake, asked)
    connection.execute("set work_mem = '256MB'")
    with measured("PostgreSQL: counts and two percentiles by the hour", asked.rows):
        groups = len(connection.execute(IN_POSTGRESQL.encode()).fetchall())
    with measured("DuckDB, on the lake: the same", asked.rows):
        found = in_duckdb(f"{lake}/attempts/**/*.parquet")
    assert found == groups, (found, groups)


def in_duckdb(files: str) -> int:
    """Into a table: to give times with a zone to Python, DuckDB would need another package."""
    database = duckdb.connect()
    database.execute(f"create table report as {IN_DUCKDB.format(files=files)}")
    row = database.execute("select count(*) from report").fetchone()
    return int(row[0]) if row else 0
