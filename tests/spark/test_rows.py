"""A row becomes the same message, or none for the same reason, whatever rows are beside it."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from django_pgqueue.spark import rows as of_spark
from django_pgqueue.spark.rows import PLAIN, Intake, Rejected, check_json
from django_pgqueue.spark.staging import STAGED
from django_pgqueue.spark.tasks import DeclaredTask
from django_pgqueue.values.arguments import checked_max_attempts, checked_priority
from django_pgqueue.values.limits import MAX_MAX_ATTEMPTS, MAX_NAME_BYTES, MAX_PRIORITY, MIN_PRIORITY
from django_pgqueue.values.names import name_of

TASKS = {"shop.send": DeclaredTask(), "shop.report": DeclaredTask(queue="reports", priority=7, max_attempts=4)}
LIMITED = {"shop.ask": DeclaredTask(channel="api")}
TYPES = {"priority": pa.int32(), "max_attempts": pa.int64(), "dequeue_at": pa.int64()}
ODD = [
    *("[1", "2]", "[1] ", "", "null", "[]", "{}", '["a", 1.5, null]', '["\\u0000"]', '["\\ud800"]', '["é\\t\\\\"]'),
    *(
        '{"a": {"b": [1]}}',
        "[NaN]",
        "[1e400]",
        f"[{'9' * 400}]",
        "[01]",
        "[1,]",
        "[1],[2]",
        '["\n"]',
        '{"a": 1}\n',
        "[\t1]",
    ),
    *("[-0]", "[1.]", "[.5]", "true", '"x"', "7", "{1: 2}", '["\x7f"]', "[1]\x00", "[true, false]", "['a']"),
]
JSON = st.one_of(st.none(), st.sampled_from(ODD), st.text(alphabet='[]{}",:1-.e \\tn', max_size=8))
NAME = st.one_of(
    st.none(),
    st.sampled_from(["mail", "", "x" * MAX_NAME_BYTES, "x" * (MAX_NAME_BYTES + 1), "a\x00", "a\tb\\c\n"]),
    st.text(max_size=5),
)
ROW = st.fixed_dictionaries(
    {"queue": NAME},
    optional={
        "task": st.sampled_from([None, "shop.send", "shop.report", "strange"]),
        "args": JSON,
        "kwargs": JSON,
        "priority": st.sampled_from([None, 0, MIN_PRIORITY, MAX_PRIORITY, MAX_PRIORITY + 1]),
        "max_attempts": st.sampled_from([None, 1, 0, MAX_MAX_ATTEMPTS, MAX_MAX_ATTEMPTS + 1]),
        "dequeue_at": st.sampled_from([None, -1, 10**15]),
        "channel": NAME,
        "unique_key": NAME,
        "headers": JSON,
    },
)
RAW = st.fixed_dictionaries({"content": JSON}, optional={"queue": NAME, "headers": JSON})


def batch_of(rows: list[dict[str, Any]], text: pa.DataType) -> pa.RecordBatch:
    names = sorted({name for row in rows for name in row})
    arrays = [pa.array([row.get(name) for row in rows], TYPES.get(name, text)) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names)


def taken(batches: list[pa.RecordBatch], most: int = 40) -> tuple[str, list[Rejected]]:
    """The lines of COPY, and the rejected rows."""
    intake = Intake(tasks=TASKS, max_content_bytes=most)
    lines = [lines for batch in batches for lines in intake.lines(batch, "> ")]
    text = "".join(bytes(piece).decode() for _, piece in lines)
    assert text.count("\n") == sum(rows for rows, _ in lines)
    return text, intake.rejected


def copied(line: str) -> dict[str, str | None]:
    """A line as COPY reads it."""
    words = line.removeprefix("> ").split("\t")
    meant = {"\\\\": "\\", "\\n": "\n", "\\t": "\t", "\\r": "\r"}
    read = [None if word == "\\N" else re.sub(r"\\.", lambda found: meant[found[0]], word) for word in words]
    return dict(zip(STAGED, read, strict=True))


ROWS = st.one_of(st.lists(ROW, min_size=1, max_size=4), st.lists(RAW, min_size=1, max_size=4))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, st.sampled_from([pa.string(), pa.large_string()]))
def test_a_row_becomes_the_same_whatever_rows_are_beside_it(rows: list[dict[str, Any]], text: pa.DataType) -> None:
    batch = batch_of(rows, text)
    together, rejected = taken([batch])
    assert (together, rejected) == taken([batch.slice(number, 1) for number in range(len(rows))])
    unfit = {one.row for one in rejected}
    fit = [row for number, row in enumerate(rows) if number not in unfit]
    for row, line in zip(fit, together.split("\n")[:-1], strict=True):
        staged = copied(line)
        for name in ("channel", "unique_key", "headers", "task"):
            assert staged[name] == row.get(name)
        for name in ("queue", "priority", "max_attempts"):
            if row.get(name) is not None:
                assert staged[name] == str(row[name])


def test_a_batch_that_is_large_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_spark, "MAX_BYTES", 1)
    intake = Intake(tasks={}, max_content_bytes=9)
    pieces = list(intake.lines(pa.RecordBatch.from_pydict({"content": ["1", "", "3"]}), ""))
    assert [rows for rows, _ in pieces] == [1, 1]
    assert [one.row for one in intake.rejected] == [1]


@settings(max_examples=400, deadline=None)
@given(JSON.filter(bool), st.sampled_from([list, dict, None]))
def test_what_is_not_parsed_is_json(text: str, kind: type | None) -> None:
    if pc.match_substring_regex(text, PLAIN[kind]).as_py():
        check_json("args", text, kind)


def test_a_row_gets_the_settings_of_its_task() -> None:
    rows: list[dict[str, Any]] = [
        {"task": "shop.report", "queue": None, "headers": '{"a": "b"}', "kwargs": '{"a": [{"b": "\\t"}]}'},
        {"task": "shop.send", "queue": "m\\n", "priority": -3, "dequeue_at": -5, "unique_key": "k"},
        {"task": "shop.send", "args": '[ "ü", -1.5 ,null]'},
    ]
    text, rejected = taken([batch_of(rows, pa.string())], most=100)
    assert rejected == []
    assert text.splitlines() == [
        r'> \N	4	7	reports	\N	shop.report	\N	{"args":[],"kwargs":{"a": [{"b": "\\t"}]}}	{"a": "b"}',
        r'> -5	\N	-3	m\\n	\N	shop.send	k	{"args":[],"kwargs":{}}	\N',
        r'> \N	\N	0	default	\N	shop.send	\N	{"args":[ "ü", -1.5 ,null],"kwargs":{}}	\N',
    ]


def test_a_row_without_a_channel_has_the_one_of_its_task() -> None:
    intake = Intake(tasks=LIMITED, max_content_bytes=40)
    rows = [{"task": "shop.ask", "channel": "other"}, {"task": "shop.ask"}]
    [(_, lines)] = intake.lines(batch_of(rows, pa.string()), "> ")
    assert [copied(line)["channel"] for line in bytes(lines).decode().splitlines()] == ["other", "api"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_time_in_the_hour_that_a_clock_shows_twice_is_that_time(zone: str) -> None:
    micros = [1_793_511_000_001_900, 1_793_514_600_000_000, -1]  # half past one, and again; and before 1970
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["1"] * 3), pa.array(micros, pa.timestamp("us", zone))], ["content", "dequeue_at"]
    )
    text, _ = taken([batch])
    assert [copied(line)["dequeue_at"] for line in text.splitlines()] == ["1793511000001", "1793514600000", "-1"]


def test_a_part_of_a_larger_batch_is_only_that_part() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"content": ["1", "2", "3"], "dequeue_at": [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)] * 3}
    )
    assert taken([batch.slice(1, 1)]) == ("> 0\t5\t0\tdefault\t\\N\t\\N\t\\N\t2\t\\N\n", [])


CHECKS = {"priority": checked_priority, "max_attempts": checked_max_attempts}


@pytest.mark.parametrize(
    ("column", "fit", "unfit"),
    [
        ("priority", MIN_PRIORITY, MIN_PRIORITY - 1),
        ("priority", MAX_PRIORITY, MAX_PRIORITY + 1),
        ("max_attempts", 1, 0),
        ("max_attempts", MAX_MAX_ATTEMPTS, MAX_MAX_ATTEMPTS + 1),
        ("queue", "x" * MAX_NAME_BYTES, "x" * (MAX_NAME_BYTES + 1)),
        ("channel", "é" * (MAX_NAME_BYTES // 2), "é" * (MAX_NAME_BYTES // 2 + 1)),
        ("queue", "a b", "a\x1fb"),
        ("queue", "\x80", "\x7f"),
        ("channel", "x", ""),
    ],
)
def test_a_message_may_have_any_value_that_python_accepts(column: str, fit: Any, unfit: Any) -> None:
    """The same limits as for the callers of Python."""
    check = CHECKS.get(column, lambda name: name_of(column, name))
    assert check(fit) == fit
    with pytest.raises(ValueError, match=r"is not|is neither|cannot be"):
        check(unfit)
    assert taken([batch_of([{"content": "1", column: fit}], pa.string())])[1] == []
    [rejected] = taken([batch_of([{"content": "1", column: unfit}], pa.string())])[1]
    assert rejected.reason.startswith(column)
