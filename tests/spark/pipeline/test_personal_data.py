"""Personal data stays out of a lake, or is there as masks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.spark import mask
from django_pgqueue.spark.errors import InvalidOption, SparkQueueError
from django_pgqueue.spark.lake import Lake, LakeError, read_lake
from django_pgqueue.spark.lake.kept_columns import ALL, KeptColumns
from django_pgqueue.spark.lake.upkeep import compact
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.pipeline import drop_exported, export, follow, replay, report
from django_pgqueue.spark.source import PgQueueDataSource
from tests.spark.conftest import MASK_KEY
from tests.spark.pipeline.conftest import settled
from tests.spark.pipeline.test_replay import fail_one

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.sessions import Connect

pytestmark = pytest.mark.django_db(transaction=True)
COLUMNS = [name for name in ALL if name not in {"traceback", "result", "error_message"}]


def test_a_lake_has_the_columns_and_masks_of_its_first_export(  # noqa: PLR0917
    spark: SparkSession,
    lake: Path,
    options: dict[str, str],
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PGQUEUE_MASK_KEY", MASK_KEY)
    session = connect()
    for channel in ("ann", "bob", "ann"):
        fail_one(session, "ann@example.org", channel=channel, headers={"for": "ann@example.org"})
    session.create("still here", channel="ann")
    settled(session)
    asked = {**options, "columns": ",".join(COLUMNS), "mask": "content,channel,headers"}
    assert export(spark, lake, options=asked).rows == 3
    fail_one(session, "ann@example.org", channel="bob")
    settled(session)
    assert follow(spark, lake, options=options, once=True) == 1  # it knows

    rows = read_lake(spark, lake).orderBy("id").collect()
    assert read_lake(spark, lake).columns == COLUMNS
    assert [row["error_class"] for row in rows] == ["E"] * 4
    channels = [row["channel"] for row in rows]
    assert channels[0] == channels[2] != channels[1] == channels[3]
    assert rows[3]["headers"] is None
    assert len(json.loads(rows[0]["content"])) == 2 * mask.DIGEST_BYTES
    assert "ann@example" not in str(rows)
    opened = Lake.open(spark, lake)
    before = opened.version()
    assert MASK_KEY not in str(before.settings)
    assert compact(opened, most=1)
    assert read_lake(spark, lake).orderBy("id").collect() == rows

    quality = report(spark, lake, options=options).quality
    assert (quality.attempts, quality.unread, quality.lines()[-1]) == (4, 0, "lag: everything is exported")
    assert set(session.column("select channel from pgqueue_report_hour")) == set(channels)
    assert session.column("select example from pgqueue_report_error group by 1") == [None]
    for step, words in (
        (lambda: replay(spark, lake, "true", options=options), "A replay needs the column content, and this lake has"),
        (
            lambda: drop_exported(spark, lake, keep_days=1, options=options),
            "--drop-exported needs the column channel, and this lake has only masks of it",
        ),
        (
            lambda: export(spark, lake, options={**options, "mask": "content"}),
            "The lake has all columns but error_message, traceback, result, with masks in channel, content, headers",
        ),
    ):
        with pytest.raises(LakeError, match=words):
            step()
    monkeypatch.setenv("PGQUEUE_MASK_KEY", MASK_KEY[::-1])
    with pytest.raises(SparkQueueError, match="PGQUEUE_MASK_KEY has changed after Spark had started"):
        report(spark, lake, options={**options, "mask": "content,channel,headers", "columns": ",".join(COLUMNS)})
    with pytest.raises(LakeError, match="PGQUEUE_MASK_KEY has another key than the one that the lake was masked with"):
        KeptColumns.decided(before, PipelineOptions.of(options))


def test_the_source_reads_masks_and_a_filter_on_them_is_sparks(
    spark: SparkSession, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    for channel in ("ann", "bob", "ann"):
        fail_one(session, 1, channel=channel)
    attempts = spark.read.format("pgqueue").option("columns", "channel").option("mask", "channel,content").load()
    [first, *_] = [row["channel"] for row in attempts.orderBy("channel").collect()]
    assert attempts.where(attempts.channel == first).count() in {1, 2}
    assert attempts.where("channel in ('ann', 'bob')").count() == 0
    with pytest.raises(InvalidOption, match="Options mask and columns are about reads"):
        PgQueueDataSource({"mask": "content"}).writer(attempts.schema, overwrite=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"columns": "id,content"}, r"a lake and its reports need message_id, .*: columns=id,message_id,.*,content$"),
        ({"mask": "queue"}, "Option mask has queue, which a lake needs as it is"),
        ({"mask": "colour"}, "Option mask: attempts has no column of text 'colour'"),
        ({"mask": "id"}, "Option mask: attempts has no column of text 'id'"),
        (
            {"mask": "content", "columns": ",".join(COLUMNS[:-2])},
            "Option mask has content, which option columns leaves",
        ),
        ({"mask": "content", "maskKeyVariable": "NOWHERE"}, "variable NOWHERE is not set in this process"),
        ({"mask": "content", "maskKeyVariable": "SHORT"}, "variable SHORT has 6 characters in this process"),
    ],
)
def test_what_a_lake_cannot_be_without_is_refused_before_anything_is_written(
    lake: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], words: str
) -> None:
    monkeypatch.setenv("SHORT", "secret")
    monkeypatch.setenv("PGQUEUE_MASK_KEY", MASK_KEY)
    no_spark: Any = None
    with pytest.raises(InvalidOption, match=words) as caught:
        export(no_spark, lake, options=given)
    assert "secret'" not in str(caught.value)
    assert not lake.exists()
