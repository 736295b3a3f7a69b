"""``df.write.format("pgqueue")``: rows become messages, all of them or none, once."""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException

from django_pgqueue.spark import dead_letters, staging
from django_pgqueue.spark.errors import DatabaseUnavailable, InvalidColumns, InvalidOption
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.source import PgQueueDataSource
from django_pgqueue.spark.tasks import declared
from django_pgqueue.spark.writer import PgQueueWriter
from django_pgqueue.tasks import task as pgqueue_task
from tests.spark.conftest import arguments
from tests.spark.programs import SEND, calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.support.sessions import Session

COLUMNS = (
    "task string, args string, kwargs string, queue string, priority int, dequeue_at long, channel string, "
    "unique_key string, headers string, max_attempts int"
)


@pgqueue_task(queue_name="reports", priority=7, max_attempts=4, channel="printer", expires=dt.timedelta(hours=2))
def report(day: str) -> None:
    """Only its declaration is used."""


def write(frame: DataFrame, **options: object) -> None:
    chosen = {"tasks": SEND, **{name: str(value) for name, value in options.items()}}
    frame.write.format("pgqueue").options(**chosen).mode("append").save()


def nothing_is_left(queue: Session) -> bool:
    return (
        not queue.rows("select from pgqueue_staged")
        and not queue.messages()
        and not queue.rows("select from pgqueue_ledger")
    )


def test_every_column_is_written_to_its_field(spark: SparkSession, queue: Session) -> None:
    whole = (SEND, '["é\\t\\\\", 1.5]', '{"a": null}', "mail", -3, -5, None, "key", '{"trace": [1]}', 9)
    bare = (SEND, None, None, None, None, None, None, None, None, None)
    lane = (SEND, "[]", None, None, None, None, "tenant", None, None, None)
    write(spark.createDataFrame([whole, bare, lane], COLUMNS))
    rows = {(m.queue, m.channel): m for m in queue.messages()}
    message = rows["mail", None]
    assert message.content == {"args": ["é\t\\", 1.5], "kwargs": {"a": None}}
    assert (message.task, message.priority, message.dequeue_at) == (SEND, -3, -5)
    assert (message.unique_key, message.headers, message.max_attempts) == ("key", {"trace": [1]}, 9)
    plain = rows["default", None]
    assert (plain.content, plain.priority, plain.max_attempts) == ({"args": [], "kwargs": {}}, 0, None)
    assert plain.dequeue_at == queue.one("select pgqueue_to_epoch(%s)", [plain.created_at])
    assert ("default", "tenant") in rows


def test_a_text_with_escapes_stays_as_it_is_with_large_types_too(spark: SparkSession, queue: Session) -> None:
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        write(spark.createDataFrame([('{"a": "\\u00e9\\n"}',)], "content string"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert [message.content for message in queue.messages()] == [{"a": "é\n"}]


def test_a_time_a_content_of_a_task_and_the_options_of_a_task(spark: SparkSession, queue: Session) -> None:
    rows = [
        (None, "1", None, None, 1893456000001900),
        (report.module_path, '{"args": [1]}', None, None, None),
        (report.module_path, '{"args": [2], "kwargs": {"a": 1}}', "own", '{"trace": 1}', None),
    ]
    frame = spark.createDataFrame(rows, "task string, content string, queue string, headers string, micros long")
    times = frame.selectExpr("task", "content", "queue", "headers", "timestamp_micros(micros) as dequeue_at")
    write(times, tasks=declared(report))
    raw, own, declares = sorted(queue.messages(), key=lambda message: message.queue)
    assert (raw.queue, raw.task, raw.content, raw.max_attempts) == ("default", None, 1, 5)
    assert raw.dequeue_at == 1893456000001
    assert (declares.queue, declares.priority, declares.max_attempts) == ("reports", 7, 4)
    assert (raw.channel, own.channel, declares.channel) == (None, "printer", "printer")
    assert (own.queue, own.priority, own.max_attempts) == ("own", 7, 4)
    assert (raw.headers, own.headers, declares.headers) == (None, {"trace": 1}, {"expires_us": 7_200_000_000})
    assert (declares.content, own.content) == ({"args": [1], "kwargs": {}}, {"args": [2], "kwargs": {"a": 1}})


def test_rows_of_several_tasks_are_enqueued_once_each(spark: SparkSession, queue: Session) -> None:
    write(calls(spark, 5000, partitions=4))
    assert arguments(queue) == list(range(5000))
    assert not queue.rows("select from pgqueue_staged")


def test_a_run_with_a_name_is_enqueued_once_however_its_rows_are_spread(spark: SparkSession, queue: Session) -> None:
    write(calls(spark, 100, partitions=4), runId="first of May")
    write(calls(spark, 100, partitions=3), runId="first of May")
    assert arguments(queue) == list(range(100))
    write(calls(spark, 100), runId="second of May")
    assert len(queue.messages()) == 200
    assert queue.rows("select run_id, epoch, rows from pgqueue_ledger order by 1") == [
        ("first of May", -1, 100),
        ("second of May", -1, 100),
    ]


def failing(frame: DataFrame, partition: int, attempts: int) -> DataFrame:
    """The same rows, from tasks of which one fails so often when all its rows have been taken."""

    def fail(rows: Any) -> Any:
        yield from rows
        context = TaskContext.get()
        if context is not None and context.partitionId() == partition and context.attemptNumber() < attempts:
            message = "injected"
            raise RuntimeError(message)

    return frame.sparkSession.createDataFrame(frame.rdd.mapPartitions(fail), frame.schema)


def test_tasks_that_fail_are_tried_again_and_their_rows_counted_once(spark: SparkSession, queue: Session) -> None:
    write(failing(calls(spark, 400, partitions=3), partition=1, attempts=2))
    assert arguments(queue) == list(range(400))
    assert not queue.rows("select from pgqueue_staged")


def test_a_run_with_a_task_that_always_fails_enqueues_nothing(spark: SparkSession, queue: Session) -> None:
    with pytest.raises(PySparkException, match="injected"):
        write(failing(calls(spark, 400), partition=1, attempts=99))
    # The Python process of a failed task may stage its rows behind the abort of the run: they go after a week.
    assert (queue.messages(), queue.rows("select from pgqueue_ledger")) == ([], [])


BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"task": "shop.tasks.other"}, "task 'shop.tasks.other' is not in the option tasks: shop.tasks.send"),
    ({"args": "[1"}, "args is not JSON: Expecting ',' delimiter"),
    ({"args": '{"a": 1}'}, "args is '{\"a\": 1}', and must be a JSON array"),
    ({"kwargs": "[]"}, "kwargs is '[]', and must be a JSON object"),
    ({"args": "[NaN]"}, "args has NaN, which JSON cannot represent"),
    ({"args": "[1e999]"}, "args has a number that is too large"),
    ({"args": "[1.5e-16383]"}, "args has a number that PostgreSQL cannot store"),
    ({"args": f"[0.{'0' * 16_383}1]"}, "args has a number that PostgreSQL cannot store"),
    ({"args": "[0e9999999999]"}, "args has a number that PostgreSQL cannot store"),
    ({"args": '["\\u0000"]'}, "args contains the character NUL, which PostgreSQL cannot store"),
    ({"args": '["\\ud800"]'}, "args is not valid Unicode"),
    ({"args": "[" * 100_000}, "args is nested too deeply"),
    ({"headers": "1"}, "headers is '1', and must be a JSON object"),
    ({"queue": ""}, "queue is text of 1 to 255 bytes in UTF-8, without control characters"),
    ({"channel": "x" * 256}, "channel is text of 1 to 255 bytes in UTF-8, without control characters"),
    ({"unique_key": "a\x00"}, "unique_key is text of 1 to 255 bytes in UTF-8, without control characters"),
    ({"priority": 101}, "priority is 101, and goes from -100 to 100"),
    ({"max_attempts": 0}, "max_attempts is 0, and goes from 1 to 1,000,000"),
    ({"args": json.dumps(["x" * 1_048_576])}, "args has 1,048,580 bytes and may have 1,048,576: store the data"),
    ({"task": None}, "the row has neither task nor content"),
]
NAMES = re.findall(r"(\w+) \w+", COLUMNS)


def test_a_file_of_dead_letters_that_cannot_be_written_leaves_no_part_of_it(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        dead_letters.keep(str(tmp_path), uuid.uuid4(), ["\ud800"])
    assert list(tmp_path.iterdir()) == []


def test_invalid_rows_are_written_to_the_dead_letters_with_place_and_reason(
    spark: SparkSession, queue: Session, tmp_path: Path
) -> None:
    good = {"task": SEND, "args": "[1]", "headers": '{"n": [1.5e-16382, 0e9999]}'}
    rows = [{**good, **bad} for bad, _ in BAD_ROWS] + [good]
    frame = spark.createDataFrame([tuple(row.get(name) for name in NAMES) for row in rows], COLUMNS).coalesce(1)
    write(frame, deadLetterPath=tmp_path / "dead", runId="a run")
    assert arguments(queue) == [1]
    [file] = (tmp_path / "dead").iterdir()
    letters = [json.loads(line) for line in file.read_text().splitlines()]
    assert [letter["place"] for letter in letters] == [f"partition 0, row {n}" for n in range(len(BAD_ROWS))]
    for letter, (bad, reason) in zip(letters, BAD_ROWS, strict=True):
        assert letter["reason"].startswith(reason)
        assert letter["row"].items() >= bad.items()
    write(frame, deadLetterPath=tmp_path / "dead", runId="a run")
    assert arguments(queue) == [1]
    assert list((tmp_path / "dead").iterdir()) == [file]


def test_text_that_is_not_utf8_is_a_row_with_a_reason(spark: SparkSession, queue: Session, tmp_path: Path) -> None:
    """Spark keeps the bytes of a file or of another database as they are, and PostgreSQL refuses them."""
    rows = "values (0, X'6d61696c'), (1, X'6dff'), (2, null)"
    frame = spark.sql(f"select '1' as content, cast(queue as string) as queue from ({rows}) as t (n, queue) order by n")
    write(frame.coalesce(1), deadLetterPath=tmp_path / "dead")
    assert len(queue.messages()) == 2
    [file] = (tmp_path / "dead").iterdir()
    [letter] = [json.loads(line) for line in file.read_text().splitlines()]
    assert (letter["reason"], letter["row"]["queue"]) == ("queue is not text in UTF-8", "m\\xff")


def test_an_invalid_row_fails_the_run_and_nothing_is_enqueued(spark: SparkSession, queue: Session) -> None:
    frame = calls(spark, 100).selectExpr("task", "if(args like '[7%', 'oops', args) as args")
    with pytest.raises(PySparkException) as caught:
        write(frame)
    said = str(caught.value)
    assert "Nothing was enqueued, because not every row can become a message: partition " in said
    # Both tasks have such rows, and it does not matter who fails first.
    assert re.search(r"partition (0, row 7|1, row 20) \(task='shop.tasks.send', args='oops'\): args is not JSON", said)
    assert "Set the option deadLetterPath to write such rows to a folder instead." in said
    assert nothing_is_left(queue)


WITH_ZONE = "cast(concat(dequeue_at, ' Europe/Berlin') as timestamp_ltz)"
INVALID_COLUMNS: list[tuple[str, dict[str, str], str]] = [
    (
        "task string, colour string",
        {},
        "A message has no column 'colour'. Drop it or rename it. The columns are task,",
    ),
    ("queue string", {}, "The DataFrame needs a column task, or content for raw messages. It has queue."),
    ("args string", {}, "The DataFrame needs a column task, or content"),
    ("content string, args string", {}, "give either content, or args and kwargs"),
    ("task string, args array<int>", {}, "Column args is array<int>: write it as JSON: to_json(args)."),
    ("task string, priority string", {}, "Column priority is string: cast it to bigint."),
    ("task string, priority int, content boolean", {}, "Column content is boolean: cast it to string."),
    ("task string, dequeue_at int", {}, "Column dequeue_at is int: cast it to bigint, for epoch milliseconds."),
    ("task string, dequeue_at date", {}, "Column dequeue_at is date: cast it to timestamp."),
    ("task string, dequeue_at timestamp_ntz", {}, f"is timestamp_ntz: it has no time zone. Give it one: {WITH_ZONE}."),
    ("task string", {"tasks": ""}, "Name the allowed tasks, because executors cannot read the project"),
    ("task string", {"urlVariable": "NOT_SET"}, "The environment variable NOT_SET is not set"),
]


def test_invalid_columns_are_an_error_before_any_task_runs(spark: SparkSession, queue: Session, here: None) -> None:
    for schema, options, said in INVALID_COLUMNS:
        source = PgQueueDataSource({"tasks": SEND, **options} if options.get("tasks", SEND) else {})
        with pytest.raises((InvalidColumns, InvalidOption), match=re.escape(said)):
            source.writer(spark.createDataFrame([], schema).schema, overwrite=False)
    schema, _, said = INVALID_COLUMNS[0]
    with pytest.raises(PySparkException, match=re.escape(said)):
        write(spark.createDataFrame([], schema))
    assert nothing_is_left(queue)


@pytest.mark.parametrize("kind", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def test_what_is_said_about_a_time_without_zone_is_right_whatever_the_session_has(
    spark: SparkSession, kind: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.timestampType", kind)
    try:
        noon = spark.sql("select timestamp_ntz'2026-07-01 12:00:00' as dequeue_at")
        assert noon.selectExpr(f"unix_seconds({WITH_ZONE})").first() == (1_782_900_000,)
    finally:
        spark.conf.unset("spark.sql.timestampType")
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_queue_is_not_overwritten(spark: SparkSession, queue: Session) -> None:
    kept = queue.create()
    with pytest.raises(PySparkException, match="cannot replace a queue"):
        calls(spark, 1).write.format("pgqueue").option("tasks", SEND).mode("overwrite").save()
    assert [message.id for message in queue.messages()] == [kept]


def test_a_run_without_rows_does_not_use_its_name_up(spark: SparkSession, queue: Session, tmp_path: Path) -> None:
    rows, unfit = calls(spark, 3), calls(spark, 3).selectExpr("task", "'oops' as args")
    write(rows.where("false"), runId="orders of May 1st")
    write(unfit, runId="orders of May 1st", deadLetterPath=tmp_path / "dead")
    assert nothing_is_left(queue)
    write(rows.where("false"), runId="orders of May 1st", deadLetterPath=tmp_path / "dead")
    assert len(list((tmp_path / "dead").iterdir())) == 1
    write(rows, runId="orders of May 1st", deadLetterPath=tmp_path / "dead")
    assert list((tmp_path / "dead").iterdir()) == [], "what was put aside has been enqueued"
    write(rows.where("false"), runId="orders of May 1st")
    assert arguments(queue) == [0, 1, 2]


@pytest.mark.usefixtures("here")
def test_of_two_writers_of_one_run_one_enqueues_and_the_other_says_so(
    queue: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    options = PipelineOptions.of({"tasks": SEND, "runId": "first of May"})
    rows = pa.RecordBatch.from_pydict({"task": [SEND], "args": ["[1]"]})
    first, second, third = (PgQueueWriter(options) for _ in range(3))
    written = [(writer, writer.write(iter([rows]))) for writer in (first, second, third)]
    third.abort([])
    assert queue.one("select count(*) from pgqueue_staged") == 2, "an abort deletes its own rows"
    assert arguments(queue) == []
    for writer, message in written[:2]:
        writer.commit([message])
    assert arguments(queue) == [1]
    assert capsys.readouterr().err.startswith("The run 'first of May' was enqueued before: nothing was enqueued.")
    assert not queue.rows("select from pgqueue_staged")


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch, here: None) -> Callable[[int], None]:
    """So many answers to an enqueue are lost behind its commit: PostgreSQL ends the session there."""
    left = [0]

    class Losing(psycopg.Connection[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            cursor = super().execute(query, *args, **kwargs)
            if query == staging.ENQUEUE and left[0]:
                left[0] -= 1
                super().execute("select pg_terminate_backend(pg_backend_pid())")
            return cursor

    def lose(answers: int) -> None:
        left[0] = answers

    monkeypatch.setattr(psycopg, "connect", Losing.connect)
    return lose


def one_row() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"task": [SEND], "args": ["[1]"]})


def test_a_write_whose_connection_breaks_behind_its_commit_does_not_say_that_another_was_first(
    queue: Session, lost: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    writer = PgQueueWriter(PipelineOptions.of({"tasks": SEND}))
    message = writer.write(iter([one_row()]))
    lost(1)
    writer.commit([message])
    assert arguments(queue) == [1]
    assert capsys.readouterr().err == ""


def test_a_write_that_cannot_know_its_outcome_says_how_to_repeat_it(
    queue: Session, lost: Callable[[int], None]
) -> None:
    writer = PgQueueWriter(PipelineOptions.of({"tasks": SEND}))
    message = writer.write(iter([one_row()]))
    lost(3)
    with pytest.raises(DatabaseUnavailable, match="The rows are enqueued or not") as caught:
        writer.commit([message])
    queue.rows("alter table pgqueue_staged rename to pgqueue_away")
    try:
        writer.abort([message])  # as Spark does then; an error here would be told in the place of that one
    finally:
        queue.rows("alter table pgqueue_away rename to pgqueue_staged")
    assert arguments(queue) == [1]
    found = re.search(r"runId '(batch .+)'", str(caught.value))
    assert found is not None
    again = PgQueueWriter(PipelineOptions.of({"tasks": SEND, "runId": found[1]}))
    again.commit([again.write(iter([one_row()]))])
    assert arguments(queue) == [1]


@contextmanager
def refused(queue: Session, code: str, *, when: str = "true") -> Iterator[None]:
    """PostgreSQL refuses to enqueue with this error."""
    queue.rows(
        "create function refuse() returns trigger language plpgsql as $$ begin "
        f"if {when} then raise exception 'refused' using errcode = '{code}'; end if; return new; end $$"
    )
    queue.rows("create trigger refuse before insert on pgqueue_ledger for each row execute function refuse()")
    try:
        yield
    finally:
        queue.rows("drop function refuse cascade")


@pytest.mark.usefixtures("here")
def test_a_write_that_was_refused_does_not_say_that_its_outcome_is_unknown(queue: Session) -> None:
    writer = PgQueueWriter(PipelineOptions.of({"tasks": SEND}))
    message = writer.write(iter([one_row()]))
    for code, error in (("55P03", DatabaseUnavailable), ("25006", psycopg.errors.ReadOnlySqlTransaction)):
        with refused(queue, code), pytest.raises(error, match="refused") as caught:
            writer.commit([message])
        assert "enqueued or not" not in str(caught.value)
    writer.commit([message])
    assert arguments(queue) == [1]


def test_a_write_whose_server_is_read_only_after_an_unknown_outcome_says_how_to_repeat_it(
    queue: Session, lost: Callable[[int], None]
) -> None:
    """As after a failover."""
    writer = PgQueueWriter(PipelineOptions.of({"tasks": SEND}))
    message = writer.write(iter([one_row()]))
    lost(1)
    known = "exists (select from pgqueue_ledger l where l.run_id = new.run_id)"
    with (
        refused(queue, "25006", when=known),
        pytest.raises(DatabaseUnavailable, match=r"refused(?s:.)+ or not"),
    ):
        writer.commit([message])
    assert arguments(queue) == [1]
