"""The steps and decisions of durable tasks come to the lake once, with the attempt that ends their message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from django_pgqueue.spark.lake import Lake, LakeError, read_lake
from django_pgqueue.spark.lake.kept_columns import ALL
from django_pgqueue.spark.lake.upkeep import erase
from django_pgqueue.spark.pipeline import adopt, check, export, follow
from tests.spark.conftest import MASK_KEY
from tests.spark.pipeline.conftest import settled
from tests.support.sessions import token

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)
TABLES = ("steps", "approvals")


def begin(session: Session, **message: Any) -> dict[str, Any]:
    """A durable task that has done a step, has asked for two decisions, got one, and runs."""
    session.create({"args": [1], "kwargs": {}}, task="shop.tasks.order", **message)
    held = token(session.take(tasks=True))
    session.value("pgqueue_step_record", **held, name="charge", result={"card": "ann"})
    for name in ("ship", "refund"):
        session.rows(
            "insert into pgqueue_approval (message_id, name, asked_at) values (%s, %s, pgqueue_clock())",
            [held["id"], name],
        )
    session.value("pgqueue_approval_decide", message_id=held["id"], name="ship", approved=True, by="ada", comment="ok")
    return held


def end(session: Session, held: dict[str, Any]) -> int:
    session.value("pgqueue_message_complete", **held)
    settled(session)
    return int(held["id"])


def rows(spark: SparkSession, lake: Path) -> list[tuple[str, int, str]]:
    """Of both tables: message and name."""
    found = [(table, row) for table in TABLES for row in read_lake(spark, lake, table).collect()]
    return [
        (table, row["message_id"], row["name"]) for table, row in sorted(found, key=lambda each: each[1]["message_id"])
    ]


def of(message_id: int) -> list[tuple[str, int, str]]:
    return [("steps", message_id, "charge"), ("approvals", message_id, "ship")]


def test_steps_and_decisions_come_once_with_the_end_of_their_message(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    held = begin(session)
    settled(session)
    export(spark, lake, options=options)
    assert rows(spark, lake) == [], "the message runs, and its next step may come at any time"
    first = end(session, held)
    export(spark, lake, options=options)
    export(spark, lake, options=options)
    assert rows(spark, lake) == of(first)
    [step] = read_lake(spark, lake, "steps").collect()
    assert (step["kind"], step["status"], step["result"]) == ("step", "done", '{"card": "ann"}')
    [decision] = read_lake(spark, lake, "approvals").collect()
    assert (decision["approved"], decision["decided_by"], decision["comment"]) == (True, "ada", "ok")

    # Killed between the steps and the attempts.
    second = end(session, begin(session))
    advance, lost = Lake.advance, ConnectionError("the store is gone")

    def dies(*given: Any, name: str = "attempts", **more: Any) -> bool:
        if name == "attempts":
            raise lost
        return advance(*given, name=name, **more)

    with monkeypatch.context() as dying:
        dying.setattr(Lake, "advance", dies)
        with pytest.raises(ConnectionError):
            export(spark, lake, options=options)
    assert rows(spark, lake) == of(first) + of(second)
    opened = Lake.open(spark, lake)
    assert opened.position("steps") > opened.version().position
    third = end(session, begin(session))
    assert follow(spark, lake, options=options, once=True) == 2
    every = of(first) + of(second) + of(third)
    assert rows(spark, lake) == every

    # A killed run, and then another database.
    fourth = end(session, begin(session))
    with monkeypatch.context() as dying:
        dying.setattr(Lake, "advance", dies)
        with pytest.raises(ConnectionError):
            export(spark, lake, options=options)
    opened.adopt(opened.version(), "1/before", 1 << 60)
    assert adopt(spark, lake, options=options).same == 3
    assert rows(spark, lake) == every
    assert export(spark, lake, options=options).rows == 1
    assert rows(spark, lake) == every + of(fourth)
    assert erase(opened, f"message_id = {first}") == 1
    assert rows(spark, lake) == of(second) + of(third) + of(fourth)
    assert check(spark, lake)


def test_steps_that_were_restored_without_their_position_are_refused_and_come_again(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session, every = connect(), []
    for _ in range(2):
        every += of(end(session, begin(session)))
        export(spark, lake, options=options)
    table = DeltaTable(str(lake / "steps"))
    table.restore(1)
    for use in (export, adopt):
        with pytest.raises(LakeError, match=r"/steps to an earlier .* restore version 2, or move it away: the next"):
            use(spark, lake, options=options)
    (lake / "steps").rename(lake / "away")
    export(spark, lake, options=options)
    assert rows(spark, lake) == every


def test_steps_have_the_columns_and_masks_of_the_attempts(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGQUEUE_MASK_KEY", MASK_KEY)
    session = connect()
    end(session, begin(session))
    names = ",".join(name for name in ALL if name != "content")
    export(spark, lake, options={**options, "columns": names, "mask": "result"})
    [step], [decision] = (read_lake(spark, lake, table).collect() for table in TABLES)
    assert step["name"] == "charge"
    assert "ann" not in str(step)
    assert decision["name"] == "ship"
    assert not {"decided_by", "comment", "details"} & {*decision.asDict()}
