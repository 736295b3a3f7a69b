"""The lake follows the history, and exports and follows take turns."""

from __future__ import annotations

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.spark.errors import InvalidOption
from django_pgqueue.spark.lake import Lake, NotShared
from django_pgqueue.spark.lake.data_files import seen
from django_pgqueue.spark.lake.open_files import Written
from django_pgqueue.spark.pipeline import export, follow, report
from tests.spark.conftest import private_disk
from tests.spark.pipeline.conftest import ended
from tests.spark.pipeline.test_export import ids
from tests.support.sessions import end_one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.sessions import Connect

pytestmark = pytest.mark.django_db(transaction=True)


def test_export_and_follow_take_turns_and_nothing_is_skipped_or_repeated(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, late = connect(), connect(autocommit=False)
    end_one(late)
    ended(session)
    export(spark, lake, options=options)
    late.commit()
    ended(session)
    assert follow(spark, lake, options=options, once=True) == 3
    ended(session)
    assert export(spark, lake, options=options).rows == 1
    ended(session)
    assert follow(spark, lake, options=options, once=True) == 1
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_a_follow_cuts_what_is_there_into_batches(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    ended(session, 3)
    assert follow(spark, lake, options={**options, "maxRowsPerBatch": "1"}, once=True) == 3
    assert Lake.open(spark, lake).version().number == 3
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_an_export_stops_where_it_is_told_to(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    ended(session, 2)
    [first, second] = session.column("select transaction_id from pgqueue_attempt order by id")
    assert export(spark, lake, options={**options, "toTransaction": str(second)}).rows == 1
    assert Lake.open(spark, lake).version().position == second
    assert export(spark, lake, options=options).rows == 1
    assert first < second


@pytest.mark.parametrize("step", [export, follow])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("where", "status = 'failed'"),
        ("table", "messages"),
        ("finishedFrom", "2026-11-01T00:00:00+00:00"),
        ("finishedTo", "2026-11-01T00:00:00+00:00"),
        ("fromTransaction", "7"),
    ],
)
def test_an_option_that_leaves_rows_out_is_refused(  # noqa: PLR0917
    spark: SparkSession, lake: Path, options: dict[str, str], step: Any, option: str, value: str
) -> None:
    with pytest.raises(InvalidOption, match=rf"Option {option} cannot be used by export and follow"):
        step(spark, lake, options={**options, option: value})
    assert not lake.exists()


def test_files_that_are_not_where_the_driver_looks_move_no_position(spark: SparkSession, lake: Path) -> None:
    opened = Lake.open_or_new(spark, lake)
    with pytest.raises(NotShared, match=r"3 rows into report_error/.*, and in .* this machine sees none of them"):
        seen(opened, "report_error", Written("date=2026-11-01/elsewhere.parquet", 3, 0))


def test_reports_and_exports_run_while_a_follow_does(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, enough = connect(), Event()
    ended(session)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(follow, spark, lake, seconds=0.1, options=options, until=enough.is_set)
        try:
            wait_until(
                lambda: run.done() or (Lake(spark, lake).exists and ids(spark, lake)), "the first batch is there", 60
            )
            ended(session)
            exported = export(spark, lake, options=options).rows
            assert report(spark, lake, options=options).rows["report_hour"]
        finally:
            enough.set()
        assert exported + run.result() == 2
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_executors_with_a_disk_of_their_own_are_an_error_and_move_no_position(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster whose machines do not share the folder: processes of tasks see another disk at its place."""
    private, python = private_disk(tmp_path / "place"), tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.join([*private, sys.executable])} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    session, lake = connect(), tmp_path / "place" / "jobs"
    ended(session)
    for step in (export, lambda *given, **more: follow(*given, **more, once=True)):
        with pytest.raises(NotShared, match="the executors do not share the driver's disk"):
            step(spark, lake, options=options)
    version = Lake.open(spark, lake).version()
    assert (version.number, version.position, version.files()) == (0, 0, [])
