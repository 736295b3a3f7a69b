"""A filter means in PostgreSQL what it means in Spark, or it is left to Spark."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from django_pgqueue.spark import filters, query
from django_pgqueue.spark.schema import ATTEMPTS, MESSAGES
from tests.spark.conftest import finish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.sessions import Session

NEW_YEAR = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
MEANINGS: list[tuple[Filter, str]] = [
    (EqualTo(("queue",), "mail"), "queue = 'mail'"),
    (EqualTo(("queue",), "ma'il\\"), 'queue = "ma\'il\\\\"'),
    (Not(EqualTo(("queue",), "mail")), "queue <> 'mail'"),
    (GreaterThan(("queue",), "a"), "queue > 'a'"),  # not as the language of the database sorts
    (LessThan(("queue",), "a"), "queue < 'a'"),
    (In(("queue",), ("mail", "Ä")), "queue in ('mail', 'Ä')"),
    (IsNull(("channel",)), "channel is null"),
    (IsNotNull(("channel",)), "channel is not null"),
    (Not(EqualTo(("channel",), "")), "channel <> ''"),
    (EqualNullSafe(("channel",), "t"), "channel <=> 't'"),
    (Not(EqualNullSafe(("channel",), "t")), "not channel <=> 't'"),
    (StringStartsWith(("task",), "sh_p."), "startswith(task, 'sh_p.')"),
    (StringStartsWith(("task",), "shop."), "task like 'shop.%'"),
    (StringEndsWith(("task",), ".send"), "task like '%.send'"),
    (StringEndsWith(("task",), ""), "endswith(task, '')"),
    (StringContains(("task",), "%t"), "contains(task, '%t')"),
    (StringContains(("task",), "op.t"), "task like '%op.t%'"),
    (Not(StringStartsWith(("task",), "shop.")), "not task like 'shop.%'"),
    (GreaterThanOrEqual(("priority",), -5), "priority >= -5"),
    (LessThanOrEqual(("priority",), 1), "priority <= 1"),
    (EqualTo(("final",), True), "final"),
    (Not(EqualTo(("final",), True)), "not final"),
    (LessThan(("dequeue_at",), 2**40), "dequeue_at < 1099511627776"),
    (GreaterThan(("finished_at",), NEW_YEAR), "finished_at > timestamp '2020-01-01 00:00:00'"),
    (LessThanOrEqual(("finished_at",), NEW_YEAR), "finished_at <= timestamp '2020-01-01 00:00:00'"),
    (StringContains(("content",), '"n": 3'), "content like '%\"n\": 3%'"),
]


def test_a_pushed_filter_selects_the_same_rows(spark: SparkSession, queue: Session) -> None:
    kinds = [("mail", None, None), ("Ä", "", "shop.tasks.send"), ("a", "t", "shop.other"), ("B", "u", "x.top.t")]
    for number, (name, channel, task) in enumerate([*kinds, ("ma'il\\", None, "s.d%t")]):
        finish(queue, queue=name, task=task, priority=number * 3 - 5)
        queue.rows(
            "update pgqueue_attempt set channel = %s, final = %s, content = %s where queue = %s",
            [channel, number != 2, f'{{"n": {number}}}', name],
        )
    columns = ["id", "queue", "channel", "task", "priority", "final", "dequeue_at", "finished_at", "content"]
    schema = StructType([ATTEMPTS[name] for name in columns])
    rows = [tuple(row) for row in queue.rows(query.select("attempts", schema, []))]
    wanted = [f"{said} as c{number}" for number, (_, said) in enumerate(MEANINGS)]
    in_spark = spark.createDataFrame(rows, schema).selectExpr("id", *wanted)
    answers = [row.asDict() for row in in_spark.collect()]
    for number, (filter_, said) in enumerate(MEANINGS):
        condition = filters.condition(filter_, ATTEMPTS)
        assert condition is not None, said
        found = queue.column(f"select id from pgqueue_attempt where {condition.as_string(None)} order by id")
        assert found == sorted(row["id"] for row in answers if row[f"c{number}"]), said


@pytest.mark.parametrize(
    "filter_",
    [
        EqualTo(("colour",), 1),
        EqualTo(("queue", "length"), 4),
        EqualTo(("queue",), "\x00"),
        EqualTo(("queue",), "\ud800"),
        EqualTo(("priority",), "5"),
        EqualTo(("priority",), True),
        EqualTo(("finished_at",), NEW_YEAR.replace(tzinfo=None)),
        In(("queue",), ("mail", None)),
        In(("queue",), ()),
        Not(EqualTo(("colour",), 1)),
    ],
)
def test_uncertain_filters_are_left_to_spark(filter_: Filter) -> None:
    assert filters.condition(filter_, ATTEMPTS) is None


def test_lists_are_left_to_spark() -> None:
    ids: Any = [1]
    assert filters.condition(EqualTo(("after_ids",), ids), MESSAGES) is None
