"""``spark.read.format("pgqueue")``: the history, and what waits."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from django_pgqueue.spark import reader, schema, slices
from django_pgqueue.spark.errors import DatabaseUnavailable
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.schema import ATTEMPTS
from django_pgqueue.spark.source import read as of_source
from tests.spark.conftest import finish, numbers, without_old_pages
from tests.support.sessions import token

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.fixtures.sessions import Connect
    from tests.support.sessions import Session


def read(spark: SparkSession, **options: object) -> DataFrame:
    return spark.read.format("pgqueue").options(**{name: str(value) for name, value in options.items()}).load()


def test_a_finished_attempt_arrives_with_all_its_values(spark: SparkSession, queue: Session) -> None:
    content = {"args": ["é\"'\\\n\t,"], "kwargs": {"n": None}}
    queue.create(content, queue="mail", priority=-5, dequeue_at=-7, headers={"a": [1]}, task="shop.t")
    held = queue.take(queues=["mail"], tasks=True)
    error = {"class": "ValueError", "message": "a\nb", "traceback": ""}
    queue.value("pgqueue_message_fail", **token(held), error=error)
    [there] = queue.history()
    [row] = read(spark).collect()
    for name in ATTEMPTS.fieldNames():
        value, expected = row[name], getattr(there, name)
        if name in {"content", "headers", "result"}:
            value = None if value is None else json.loads(value)
        if isinstance(expected, dt.datetime):
            value = value.astimezone(dt.UTC)
        assert value == expected, name


def test_steps_events_and_approvals_are_read_and_only_what_was_asked_for(spark: SparkSession, queue: Session) -> None:
    queue.rows(
        """
        with step as (
            insert into pgqueue_step (message_id, recorded_at, finished_at, attempt, kind, status, name, result)
            select 7, now(), now(), 1, 'step', status, 'charge', '[1]' from unnest(array['began', 'done']) as status
        ), event as (
            insert into pgqueue_event values ('paid', now(), '{"by": "card"}')
        )
        insert into pgqueue_approval (message_id, asked_at, name, details) values (7, now(), 'refund', '"why"')
        """
    )
    steps = of_source(spark, "steps", columns=["name", "result"], where="status = 'done'")
    assert [tuple(row) for row in steps.collect()] == [("charge", "[1]")]
    assert [row["payload"] for row in of_source(spark, "events").collect()] == ['{"by": "card"}']
    [approval] = of_source(spark, "approvals").collect()
    assert (approval["name"], approval["approved"], approval["details"]) == ("refund", None, '"why"')


def test_waiting_messages_are_read_too(spark: SparkSession, queue: Session) -> None:
    first = queue.create("tea", queue="mail", dequeue_at=2**50, headers={"b": 1, "a": 2})
    queue.value("pgqueue_message_create_after", after_ids=[first], content=[1])
    queue.create(3)
    queue.take(queues=["default"])
    rows = {row["id"]: row for row in read(spark, table="messages").collect()}
    assert {key: (row["queue"], row["after_ids"]) for key, row in rows.items()} == {
        first: ("mail", None),
        first + 1: ("default", [first]),
        first + 2: ("default", None),
    }
    assert (rows[first]["content"], rows[first]["headers"]) == ('"tea"', '{"a": 2, "b": 1}')


def test_the_columns_are_the_requested_ones(spark: SparkSession, queue: Session) -> None:
    [message_id] = finish(queue, queue="mail")
    assert read(spark, columns="queue,message_id").collect() == [("mail", message_id)]
    asked = spark.read.format("pgqueue").schema("status string, queue string").load()
    assert asked.collect() == [("cancelled", "mail")]
    assert read(spark).count() == 1


def test_only_the_requested_columns_are_selected() -> None:
    found = reader.select("attempts", StructType().add("queue", "string"), [])
    assert found == 'select "queue" from "pgqueue_attempt" where true'


def test_the_ends_of_the_calendar_are_read(spark: SparkSession, queue: Session) -> None:
    finish(queue)
    queue.rows("update pgqueue_attempt set finished_at = '9999-12-29', created_at = '0001-01-03', started_at = null")
    [row] = read(spark).selectExpr("year(finished_at)", "year(created_at)", "started_at").collect()
    assert tuple(row) == (9999, 1, None)


def test_the_tables_refuse_times_outside_the_calendar_of_python_and_spark(queue: Session) -> None:
    constrained = {
        tuple(row)
        for row in queue.rows("""
            select c.conrelid::regclass::text, a.attname
            from pg_constraint c join pg_attribute a on a.attrelid = c.conrelid and a.attnum = any (c.conkey)
            where c.conname like '%\\_times\\_of\\_calendar' and c.convalidated
        """)
    }
    read_as_times = {
        (schema.SQL_NAMES[table], field.name)
        for table, fields in schema.TABLES.items()
        for field in fields.fields
        if field.dataType == schema.TIMESTAMP
    }
    assert read_as_times <= constrained


def test_several_tasks_read_each_row_once_and_are_no_more_than_connections(spark: SparkSession, queue: Session) -> None:
    without_old_pages(queue)
    ids = finish(queue, 500)
    several = read(spark, numPartitions=5)
    assert numbers(several) == ids
    assert several.selectExpr("spark_partition_id()").distinct().count() == 5
    bounded = read(spark, numPartitions=50, maxConnections=2)
    assert bounded.selectExpr("spark_partition_id()").distinct().count() == 2


def test_a_read_is_one_moment_whenever_its_tasks_run(queue: Session, connect: Connect, here: None) -> None:
    late = connect(autocommit=False)
    before, _ = finish(queue, 50), finish(late)
    planned = reader.PgQueueReader(PipelineOptions.of({"numPartitions": "3"}), StructType([ATTEMPTS["message_id"]]))
    tasks = planned.partitions()
    late.commit()
    finish(queue, 50)
    found = [number for task in tasks for batch in planned.read(task) for number in batch.column(0).to_pylist()]
    assert sorted(found) == before


def test_some_transactions_are_read(spark: SparkSession, queue: Session) -> None:
    _, second, _ = finish(queue), finish(queue, 3), finish(queue)
    first, last = queue.rows(
        "select min(transaction_id), max(transaction_id) + 1 from pgqueue_attempt where message_id = any(%s)", [second]
    )[0]
    assert numbers(read(spark, fromTransaction=first, toTransaction=last)) == second


def test_a_primary_is_not_waited_for(queue: Session, here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(queue)
    monkeypatch.setattr("django_pgqueue.spark.snapshot.PATIENCE_SECONDS", -1)
    for options in ({}, {"replicaVariable": "DATABASE_URL"}):
        parsed = PipelineOptions.of({**options, "toTransaction": str(10**15)})
        assert reader.PgQueueReader(parsed, ATTEMPTS).partitions()


KINDS = [
    ("mail", None, None),
    ("Ä", "", "shop.tasks.send"),
    ("a", "t", "shop.other"),
    ("B", "u", "x.top.t"),
    ("ma'il", None, "s.d"),
]


@pytest.fixture
def kinds(queue: Session) -> None:
    for number, (name, channel, task) in enumerate(KINDS):
        finish(queue, 2, queue=name, channel=channel, task=task, priority=number * 3 - 5, dequeue_at=number - 2)
    queue.create({"n": 3})
    queue.value("pgqueue_message_defer", **token(queue.take()), dequeue_at=0)


def test_one_dataframe_may_be_used_with_several_filters(spark: SparkSession, kinds: None) -> None:
    """With a source that takes filters Spark answers the second with those of the first."""
    frame = read(spark)
    mail = frame.where("queue = 'mail'")
    assert (mail.count(), frame.count(), frame.where("length(queue) = 1").count()) == (2, 11, 6)
    assert mail.union(frame.where("queue = 'a'")).count() == 4
    assert frame.join(mail.select("id"), "id", "left_anti").count() == 9


def test_conditions_in_sql_are_evaluated_by_postgresql(spark: SparkSession, kinds: None) -> None:
    assert read(spark, where="queue ~ '^m' -- {a comment}").count() == 4
    assert read(spark, where="content ->> 'n' = '3' or queue = 'a'", columns="queue").count() == 2
    assert read(spark, table="messages", where="dequeue_at = 0").count() == 1
    with pytest.raises(PySparkException, match='column "colour" does not exist'):
        read(spark, where="colour = 1").collect()


def test_days_outside_the_filter_are_not_read(spark: SparkSession, queue: Session) -> None:
    first, second = finish(queue), finish(queue)
    queue.rows("update pgqueue_attempt set finished_at = '2026-11-01 00:00+01' where message_id = %s", first)
    assert numbers(read(spark, finishedTo="2026-11-01T00:00:00+00:00")) == first
    assert numbers(read(spark, finishedFrom="2026-10-31T22:00:00Z", finishedTo="2026-11-01T00:00:00+02:00")) == []
    assert numbers(read(spark, finishedFrom="2026-11-02T00:00:00+00:00")) == second


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "postgresql://me:hunter2@db/shop"}, "Option url has a password"),
        ({"url": "postgresql://me@127.0.0.1:1/shop"}, "PostgreSQL cannot be reached: connection failed"),
    ],
)
def test_invalid_options_are_an_error_before_any_task_runs(
    spark: SparkSession, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=re.escape(said)) as caught:
        read(spark, **options).collect()
    assert "hunter2" not in str(caught.value)


def test_a_server_that_goes_away_in_the_middle_is_an_error(queue: Session, here: None) -> None:
    finish(queue, 20_000, headers={"much": "x" * 2000})
    reading = reader.PgQueueReader(PipelineOptions.of({}), ATTEMPTS)
    batches = reading.read(*reading.planned([slices.WHOLE]))
    next(batches)
    queue.rows("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgqueue-spark'")
    with pytest.raises(DatabaseUnavailable, match="PostgreSQL could not be read"):
        list(batches)
