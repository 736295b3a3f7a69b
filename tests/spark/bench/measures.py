"""What is measured: one line a figure."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg

from django_pgqueue.spark import session, source
from tests.spark.bench import first_export, history
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
            print(f"  {history.size(connection) / 2**30:.2f} GB in PostgreSQL, with indexes", flush=True)
        lake = Path(folder, "lake")
        if "first-export" in asked.only:
            tormented(connection, Path(folder, "tormented"), asked)
        if {"export", "report"} & set(asked.only):
            with measured("export, from the start of the command to its end", asked.rows):
                pipeline("export", lake, asked)
        if "report" in asked.only:
            report(connection, lake, asked)
        if {"read", "enqueue", "jdbc"} & set(asked.only):
            settings = {"spark.driver.memory": "2g", "spark.driver.extraClassPath": asked.jar}
            spark = session.start("bench", master=asked.master, configuration=settings)
            for step in (read, enqueue, jdbc):
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


def jdbc(spark: SparkSession, connection: psycopg.Connection, asked: Namespace) -> None:
    """The same questions to Spark's own source of PostgreSQL, as its manual would have it, and to COPY."""
    ends = connection.execute("select min(id)::text, max(id)::text from pgqueue_attempt").fetchone() or ("0", "0")
    bounds = {"partitionColumn": "id", "lowerBound": ends[0], "upperBound": ends[1], "numPartitions": "2"}
    of_spark = {
        "url": f"jdbc:postgresql://{connection.info.host}:{connection.info.port}/{connection.info.dbname}",
        "driver": "org.postgresql.Driver",
        "user": connection.info.user,
        "password": connection.info.password,
        "dbtable": "pgqueue_attempt",
        "fetchsize": "10000",
        **bounds,
    }
    condition = "status = 'retried' and queue = 'mail'"
    for _ in range(asked.runs):
        for name, load in (
            ("pgqueue", spark.read.format("pgqueue").load),
            ("JDBC", spark.read.format("jdbc").options(**of_spark).load),
        ):
            with measured(f"{name}: all columns", asked.rows):
                load().write.format("noop").mode("overwrite").save()
            with measured(f"{name}: count", asked.rows):
                assert load().count() == asked.rows
            with measured(f"{name}: count of a filter", asked.rows):
                found = load().where(condition).count()
        with measured("pgqueue: count, columns=id", asked.rows):
            assert source.read(spark, columns=["id"]).count() == asked.rows
        with measured("pgqueue: count of a filter, columns=id and where=…", asked.rows):
            assert source.read(spark, columns=["id"], where=condition).count() == found
        with (
            measured("COPY, binary, into this process", asked.rows),
            connection.cursor() as cursor,
            cursor.copy("copy (select * from pgqueue_attempt) to stdout (format binary)") as copied,
        ):
            assert sum(len(part) for part in copied) > asked.rows


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
    process = subprocess.Popen(words(step, lake, asked), stdout=subprocess.PIPE, text=True)
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


def words(step: str, lake: Path, asked: Namespace) -> list[str]:
    return [sys.executable, "-m", "django_pgqueue.spark", step, "--lake", str(lake), "--master", asked.master]


def tormented(connection: psycopg.Connection, lake: Path, asked: Namespace) -> None:
    """A first export whose processes are all killed every so many seconds, and begun again until one ends by itself."""
    table, begun = lake / "attempts", time.monotonic()
    attempts: list[first_export.Attempt] = []
    command = [*words("export", lake, asked), "--max-rows", str(asked.piece)]
    while not attempts or attempts[-1].is_killed:
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True, text=True)
        attempts.append(found := first_export.attempt(process, table, first_export.after(asked.kill_seconds)))
        gigabytes = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in found.memory._asdict().items())
        print(
            f"  {'killed' if found.is_killed else 'ended'} after {found.seconds:.0f} s: {found.rows:,} rows visible, "
            f"{found.repeated:,} written in vain and {found.torn_bytes / 2**20:.1f} MB torn; GB: {gigabytes}",
            flush=True,
        )
        if process.returncode not in {0, -signal.SIGKILL}:
            sys.exit("export failed")
    seconds, kills, repeated = time.monotonic() - begun, len(attempts) - 1, sum(each.repeated for each in attempts)
    print(f"first export: {asked.rows:,} rows, {seconds:.0f} s, {kills} kills; {size_on_disk(lake) / 2**30:.1f} GB")
    sizes = first_export.pieces(table)
    most = max(each.repeated for each in attempts)
    print(f"  {len(sizes)} pieces of at most {max(sizes):,} rows; repeated {repeated:,}, at most {most:,} by one kill")
    there, here = first_export.in_postgresql(connection), first_export.in_duckdb(table, lake.parent / "spill")
    print(f"  PostgreSQL {there}\n  DuckDB     {here}")
    is_same = there == here and there.has_all_between
    print(f"  {'the same rows' if is_same else 'DIFFERENT rows, or ids with gaps'}")
    if not is_same or most > max(sizes):
        sys.exit("first-export failed")


def size_on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


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
