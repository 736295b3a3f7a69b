"""A lake in an object store: S3 as moto's server has it, with no jar for it in Spark.

With ``PGQUEUE_TEST_LAKE`` most of them run in another store, which the environment tells about:

    AZURE_STORAGE_USE_EMULATOR=true PGQUEUE_TEST_LAKE=abfss://data python3 tests tests/spark/pipeline/test_store.py
    PGQUEUE_TEST_LAKE=hdfs://namenode:8020/data python3 tests tests/spark/pipeline/test_store.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from django_pgqueue.spark.lake import Lake, LakeConflict, LakeError, OldLake, convert, read_lake
from django_pgqueue.spark.lake.convert import copied, put, read
from django_pgqueue.spark.lake.lake import OLD_MANIFESTS, create
from django_pgqueue.spark.lake.place import S3, Place
from django_pgqueue.spark.lake.upkeep import compact, erase, vacuum
from django_pgqueue.spark.pipeline import Scenario, check, drop_exported, export, follow, replay, report, whatif
from django_pgqueue.spark.schema import ATTEMPTS
from tests.spark.pipeline.conftest import BUCKET, ended, served
from tests.spark.pipeline.test_delta import as_of_an_earlier_release
from tests.spark.pipeline.test_export import ids
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@contextmanager
def configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """What spark.hadoop.* says to a session."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in settings.items():
        hadoop.set(name, value)
    yield
    for name in settings:
        hadoop.unset(name)


@pytest.fixture
def lake(store: dict[str, str], spark: SparkSession) -> Iterator[str]:
    if elsewhere := os.environ.get("PGQUEUE_TEST_LAKE"):
        yield f"{elsewhere}/{uuid4().hex}"
        return
    with configured(spark, {f"fs.s3a.{key}": store[name] for key, name in S3.items() if name in store}):
        yield f"s3a://{BUCKET}/{uuid4().hex}"


def test_a_lake_in_an_object_store_goes_through_every_step(
    spark: SparkSession, lake: str, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    for step in (export, export, lambda *given, **more: follow(*given, **more, once=True)):
        ended(session)
        step(spark, lake, options=options)
    history = [attempt.id for attempt in session.history()]
    assert ids(spark, lake) == history
    opened = Lake.open(spark, lake)
    assert compact(opened, most=1) == 3
    assert vacuum(opened, kept_hours=0) == 3
    assert check(spark, lake) == 1
    assert report(spark, lake, options=options).rows["report_hour"] == read_lake(spark, lake, "report_hour").count() > 0
    assert read_lake(spark, lake, columns=["status"]).columns == ["status"]
    with pytest.raises(LakeError, match=r"no column 'statu'\. It has id,"):
        read_lake(spark, lake, columns=["statu"])
    assert replay(spark, lake, "worker is null or true", dry_run=True, options=options).messages == 3
    assert len(whatif(spark, lake, [Scenario(slots=1)])) == 1
    assert drop_exported(spark, lake, keep_days=30, options=options).kept == {}

    settings = dict(opened.place.options)
    url = lake.replace("s3a:", "s3:") + "/attempts"
    if not url.startswith("hdfs:"):  # which Polars does not know
        assert sorted(pl.read_delta(url, storage_options=settings)["id"]) == history
    attempts = DeltaTable(url, storage_options=settings).to_pyarrow_dataset()
    assert duckdb.connect().register("attempts", attempts).execute("select count(*) from attempts").fetchall() == [(3,)]

    assert erase(opened, f"id = {history[0]}") == 1
    assert ids(spark, lake) == history[1:]
    place = opened.place / "attempts"
    [file] = opened.version().files()
    place.files.delete_file(file.path)
    with pytest.raises(LakeError, match=r"1 of the .* files of .* are gone"):
        check(spark, lake)


PROGRAM = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from django_pgqueue.spark.lake import read_lake
from django_pgqueue.spark.pipeline import export, report
from django_pgqueue.spark.session import start
from tests.spark.quick import QUICK

lake, address, key, log = sys.argv[1:]
spark = start("secrets", master="local[1]", configuration=QUICK | {
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": log, "spark.eventLog.compress": "false",
    "spark.log.level": "INFO",
    "spark.hadoop.fs.s3a.endpoint": address, "spark.hadoop.fs.s3a.access.key": "key",
    "spark.hadoop.fs.s3a.secret.key": key, "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
})
export(spark, lake)
report(spark, lake)
for frame in (spark.read.format("pgqueue").load(), read_lake(spark, lake)):
    frame.explain("extended")
    frame.explain("formatted")
    print(frame.count(), "attempts")
jobs = spark.range(3).select(F.lit("1").alias("content"))
jobs.write.format("pgqueue").mode("append").save()
for wrong in ({"where": "colour = 1"}, {"urlVariable": "WRONG_URL"}, {"url": "postgresql://me:tell-nobody@db/shop"}):
    try:
        spark.read.format("pgqueue").options(**wrong).load().count()
        raise SystemExit("no error")
    except PySparkException as error:
        print(error)
print(spark.sparkContext.getConf().toDebugString())
"""


def test_no_password_and_no_key_of_a_store_is_in_a_plan_in_a_log_or_in_an_error(
    store: dict[str, str], url: str, queue: Session, tmp_path: Path
) -> None:
    ended(queue)
    password, key = str(urlsplit(url).password), uuid4().hex
    variables = {"DATABASE_URL": url, "WRONG_URL": url.replace(password, "let-me-in"), "PYTHONPATH": str(ROOT)}
    lake = f"s3a://{BUCKET}/{uuid4().hex}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, lake, store["AWS_ENDPOINT_URL"], key, str(tmp_path)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    written = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    everything = done.stdout + done.stderr + written
    assert done.stdout.count("1 attempts") == 2
    assert "BatchScan pgqueue" in everything  # the plan is there
    assert "password authentication failed" in everything
    assert len(queue.messages()) == 3
    for secret in (password, key, "let-me-in", "tell-nobody"):
        assert secret not in everything


def test_of_exports_into_a_store_at_a_time_each_attempt_comes_from_one(
    spark: SparkSession, lake: str, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    ended(session, 4)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(export, spark, lake, options={**options, "maxRowsPerBatch": "1"}) for _ in range(2)]
        assert sum(run.result().rows for run in runs) == 4
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_google_s_store_takes_the_same_way(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], connect: Connect
) -> None:
    session, key = connect(), tmp_path / "key.json"
    with served("tests.support.google_store", tmp_path) as address:
        account = {"client_email": "", "private_key": "", "private_key_id": ""}
        key.write_text(json.dumps({**account, "gcs_base_url": address, "disable_oauth": True}))
        with configured(spark, {"fs.gs.auth.service.account.json.keyfile": str(key)}):
            lake = f"gs://{BUCKET}/jobs"
            ended(session, 2)
            with ThreadPoolExecutor(2) as pool:
                runs = [pool.submit(export, spark, lake, options={**options, "maxRowsPerBatch": "1"}) for _ in range(2)]
                assert sum(run.result().rows for run in runs) == 2
            assert compact(Lake.open(spark, lake), most=1) == 2
            assert vacuum(Lake.open(spark, lake), kept_hours=0) >= 2  # and what the slower export had written
            assert check(spark, lake) == 1
            assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_an_old_lake_in_a_store_is_converted(
    spark: SparkSession, lake: str, options: dict[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    ended(session)
    export(spark, lake, options=options)
    as_of_an_earlier_release(Lake.open(spark, lake))
    with pytest.raises(OldLake, match=f"qpipeline convert --lake {lake}"):
        read_lake(spark, lake)
    manifests = Lake(spark, lake).place / OLD_MANIFESTS
    old = read(manifests, "000000000007.json")

    def copied_while_an_earlier_release_writes(*given: Any) -> str:
        put(manifests, "000000000008.json", old)
        return copied(*given)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(sys.modules[put.__module__], "copied", copied_while_an_earlier_release_writes)
        with pytest.raises(LakeConflict, match="Another process writes this lake"):
            convert(spark, lake)
    assert not Lake(spark, lake).exists
    assert convert(spark, lake) == 1
    assert export(spark, lake, options=options).rows == 0
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_a_store_that_cannot_be_read_is_told_without_a_trace(spark: SparkSession, lake: str) -> None:
    elsewhere = re.sub(r"//[^/@]*", "//elsewhere", lake)
    with pytest.raises(LakeError, match=rf"{elsewhere}/attempts cannot be read: \w"):
        read_lake(spark, elsewhere)


def test_a_table_that_two_runs_make_at_once_has_the_settings_of_one(store: dict[str, str], tmp_path: Path) -> None:
    with served("tests.support.racing_store", tmp_path) as address:
        place = Place(f"s3://{BUCKET}/lake", {**store, "AWS_ENDPOINT_URL": address})
        made = create(place, ATTEMPTS, {"pgqueue.lake_id": "ours"})
        table = DeltaTable(place.url, storage_options=dict(place.options))
    for seen in (made, table):
        assert (seen.version(), seen.metadata().configuration["pgqueue.lake_id"]) == (0, "them")
