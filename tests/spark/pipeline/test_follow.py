"""The lake follows the history, and exports and follows take turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_pgqueue.spark.lake import Lake
from django_pgqueue.spark.pipeline import export, follow
from tests.spark.pipeline.conftest import settled
from tests.spark.pipeline.test_export import ids
from tests.support.sessions import end_one

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
    end_one(session)
    settled(session)
    export(spark, lake, options=options)
    late.commit()
    end_one(session)
    settled(session)
    assert follow(spark, lake, options=options, once=True) == 3
    end_one(session)
    settled(session)
    assert export(spark, lake, options=options).rows == 1
    end_one(session)
    settled(session)
    assert follow(spark, lake, options=options, once=True) == 1
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]


def test_a_batch_that_comes_again_after_the_driver_was_killed_is_in_the_lake_once(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    end_one(session)
    settled(session)
    follow(spark, lake, options=options, once=True)
    [commit] = lake.glob("_pgqueue/follow/*/commits/0")
    commit.unlink()  # as if killed after the manifest and before this
    commit.with_name(".0.crc").unlink(missing_ok=True)
    version = Lake.open(spark, lake).manifest().version
    follow(spark, lake, options=options, once=True)
    assert commit.exists()
    assert Lake.open(spark, lake).manifest().version == version
    assert ids(spark, lake) == [attempt.id for attempt in session.history()]
