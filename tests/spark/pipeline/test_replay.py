"""Messages of the lake are enqueued again, once."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue.management.commands.qpipeline import VARIABLE
from django_pgqueue.spark.errors import SparkQueueError
from django_pgqueue.spark.lake import LakeError, read_lake
from django_pgqueue.spark.pipeline import export, replay
from django_pgqueue.spark.pipeline.replay import asked
from tests.spark.pipeline.conftest import settled
from tests.support.sessions import token

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)
FAILED = "status = 'failed' and error_class = 'E'"


def fail_one(session: Session, n: int | str, **more: Any) -> int:
    message_id = session.create({"args": [n], "kwargs": {}}, **more)
    held = session.take(queues=[more.get("queue", "default")], tasks="task" in more)
    session.value("pgqueue_message_fail", **token(held), error={"class": "E", "message": "no"})
    return message_id


def test_a_selection_is_previewed_and_then_enqueued_once_however_often(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect()
    old = [
        fail_one(session, 1, queue="mail", task="shop.tasks.send", priority=7, channel="c", headers={"trace": "ü\\"}),
        fail_one(session, 2),
    ]
    session.create("done")
    session.value("pgqueue_message_complete", **token(session.take()))
    settled(session)
    export(spark, lake, options=options)

    with monkeypatch.context() as changed:
        changed.setenv(VARIABLE, "postgresql://me@elsewhere/shop")
        with pytest.raises(SparkQueueError, match=f"{VARIABLE} has changed after Spark had started"):
            replay(spark, lake, FAILED, options=options)

    assert asked(read_lake(spark, lake), "traceback is null or queue = 'mail'") == {"traceback", "queue"}, "to be read"
    seen = replay(spark, lake, FAILED, dry_run=True, options=options)
    assert [seen.messages, seen.enqueued, session.messages()] == [2, False, []]
    assert [row["message_id"] for row in seen.preview] == old
    ends = session.column("select finished_at at time zone 'UTC' from pgqueue_attempt where final order by 1")
    assert [dt.datetime.fromisoformat(row["finished_at"]) for row in seen.preview] == ends[:2], "as a condition has it"

    one = f"{FAILED} and message_id = {old[0]}"
    assert [done.messages - done.again for done in [replay(spark, lake, one, options=options)]] == [1]
    part = replay(spark, lake, FAILED, options=options)
    assert [part.messages, part.again, part.enqueued] == [2, 1, True]
    with pytest.raises(CommandError, match="all selected messages were enqueued again before") as caught:
        call_command("qpipeline", "replay", "--lake", str(lake), "--where", FAILED, verbosity=0)
    assert caught.value.returncode == 3
    new = sorted(session.messages(), key=lambda message: message.content["args"])
    assert [message.headers["enqueued_again_from"] for message in new] == old
    assert new[0].headers["trace"] == "ü\\"
    assert [new[0].queue, new[0].task, new[0].priority, new[0].channel] == ["mail", "shop.tasks.send", 7, "c"]
    assert new[1].task is None
    assert json.loads(seen.preview[0]["content"]) == new[0].content

    replay(spark, lake, FAILED, again="after the fix", options=options)
    assert len(session.messages()) == 4


def test_a_message_has_as_many_attempts_as_at_first_and_may_be_large(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    large = {"args": ["x" * 2**20], "kwargs": {}}
    message_id = session.create(large, task="shop.tasks.poll", max_attempts=2)
    for error in (None, None, {"class": "E", "message": "no"}):
        session.value("pgqueue_message_defer", **token(session.take(tasks=True)), error=error)
    session.value("pgqueue_message_fail", **token(session.take(tasks=True)), error={"class": "E", "message": "no"})
    assert session.history(message_id)[-1].max_attempts == 4
    settled(session)
    export(spark, lake, options=options)
    replay(spark, lake, FAILED, options=options)
    [new] = session.messages()
    assert new.max_attempts == 2, "deferring has added the others"
    assert new.content == large


def test_a_message_that_ran_from_a_step_runs_from_the_beginning(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    session.create({"args": [], "kwargs": {}}, task="shop.tasks.pack", max_attempts=2)
    held = session.take(tasks=True)
    session.value("pgqueue_step_record", **token(held), name="one", result=1)
    session.value("pgqueue_message_complete", **token(held))
    first = session.value("pgqueue_step_enqueue", message_id=held.id, step="one")
    session.value("pgqueue_message_fail", **token(session.take(tasks=True)), error={"class": "E", "message": "no"})
    settled(session)
    export(spark, lake, options=options)
    replay(spark, lake, FAILED, options=options)
    [new] = session.messages()
    assert new.max_attempts == 2
    assert new.headers == {"enqueued_again_from": first, "enqueued_from_step": None}


def test_messages_that_want_the_results_of_others_are_not_replayed_without_them(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    session = connect()
    fail_one(session, 1, max_attempts=None)
    wanting = fail_one(session, 2, headers={"after_results": True})
    settled(session)
    export(spark, lake, options=options)
    with pytest.raises(LakeError, match=f"the first is {wanting}. Nothing was enqueued") as caught:
        replay(spark, lake, FAILED, dry_run=True, options=options)
    rest = str(caught.value).partition("(…)")[2].removesuffix('".')
    either = f"(status = 'failed' or message_id = {wanting}){rest}"
    assert replay(spark, lake, either, options=options).messages == 1
    [new] = session.messages()
    assert (new.content["args"], new.max_attempts) == ([1], 1), "a raw message without a number is not tried again"


def test_attempts_are_those_of_the_message_whenever_it_was_deferred(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect
) -> None:
    """It rests at its end, it was deferred before a debounce, and an earlier life of its id was deferred."""
    session = connect()
    rested, debounced, again = (session.create({"args": [n], "kwargs": {}}, max_attempts=2) for n in range(3))
    for _ in range(3):
        session.value("pgqueue_message_defer", **token(session.take()))
    session.rows("update pgqueue_attempt set finished_at = finished_at - interval '5 days', max_attempts = 2")
    session.rows(
        "update pgqueue_message set headers = '{\"expires_us\": 1}', unique_key = 'k', created_at = now() "
        "where id = %s",
        [debounced],
    )
    session.rows("update pgqueue_message set max_attempts = 1 where id = %s", [again])
    session.rows("update pgqueue_message set attempt = 0 where id = %s", [rested])
    for message_id in (rested, debounced, again):
        session.value("pgqueue_message_cancel", ids=[message_id])
    settled(session)
    export(spark, lake, options=options)
    replay(spark, lake, "status = 'cancelled'", options=options)
    found = {message.headers["enqueued_again_from"]: message.max_attempts for message in session.messages()}
    assert found == {rested: 2, debounced: 2, again: 1}


@pytest.mark.parametrize("where", ["no_such_column = 1", "status = ", "drop table x"])
def test_an_invalid_condition_is_a_clear_error(
    spark: SparkSession, lake: Path, options: dict[str, str], connect: Connect, where: str
) -> None:
    connect()
    export(spark, lake, options=options)
    with pytest.raises(LakeError, match="cannot be used"):
        replay(spark, lake, where, options=options)
