"""A batch at a time says what row by row says, or nothing."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from django_pgqueue.spark import columns
from django_pgqueue.spark.messages import DeclaredTask
from django_pgqueue.spark.rows import Intake, copied
from django_pgqueue.values.arguments import checked_max_attempts, checked_priority
from django_pgqueue.values.limits import MAX_MAX_ATTEMPTS, MAX_NAME_BYTES, MAX_PRIORITY, MIN_PRIORITY
from django_pgqueue.values.names import name_of

TASKS = {"shop.send": DeclaredTask(), "shop.report": DeclaredTask(queue="reports", priority=7, max_attempts=4)}
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
    {},
    optional={
        "task": st.sampled_from([None, "shop.send", "shop.report", "strange"]),
        "args": JSON,
        "kwargs": JSON,
        "queue": NAME,
        "priority": st.sampled_from([None, 0, MIN_PRIORITY, MAX_PRIORITY, MAX_PRIORITY + 1]),
        "max_attempts": st.sampled_from([None, 1, 0, MAX_MAX_ATTEMPTS, MAX_MAX_ATTEMPTS + 1]),
        "dequeue_at": st.sampled_from([None, -1, 10**15]),
        "channel": NAME,
        "unique_key": NAME,
        "headers": JSON,
    },
)
RAW = st.fixed_dictionaries({"content": JSON}, optional={"queue": NAME, "headers": JSON})


def both(rows: list[dict[str, Any]], most: int = 40) -> tuple[str | None, str, bool]:
    """What a batch at a time says, what row by row says, and whether that has rejected a row."""
    names = sorted({name for row in rows for name in row})
    arrays = [pa.array([row.get(name) for row in rows], TYPES.get(name, pa.string())) for name in names]
    batch = pa.RecordBatch.from_arrays(arrays, names)
    at_once = columns.lines(batch, "> ", tasks=TASKS, most=most)
    intake = Intake(tasks=TASKS, max_content_bytes=most)
    one_by_one = "".join("> " + copied(row) for row in intake.staged(batch))
    return None if at_once is None else bytes(at_once).decode(), one_by_one, bool(intake.rejected)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.lists(ROW, min_size=1, max_size=3), st.lists(RAW, min_size=1, max_size=3)))
def test_the_bulk_path_returns_the_same_as_single_rows(rows: list[dict[str, Any]]) -> None:
    at_once, one_by_one, rejected = both(rows)
    assert at_once in (None, one_by_one)
    assert not (rejected and at_once is not None)


@pytest.mark.parametrize(
    "rows",
    [
        [{"task": "shop.send", "args": "[1]"}, {"task": "shop.send", "args": '[ "ü", -1.5 ,null]'}],
        [{"task": "shop.report", "kwargs": '{"a": [{"b": "\\t"}]}', "queue": None, "headers": '{"a": "b"}'}],
        [
            {"task": "shop.send", "queue": "m\\n", "priority": -3, "dequeue_at": -5, "unique_key": "k"},
            {"task": "shop.send"},
        ],
        [{"content": "1"}, {"content": '{"a": {"b": null}}'}],
    ],
)
def test_usual_rows_take_the_bulk_path(rows: list[dict[str, Any]]) -> None:
    at_once, one_by_one, _ = both(rows, most=100)
    assert at_once == one_by_one


def test_a_part_of_a_larger_batch_is_only_that_part() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"content": ["1", "2", "3"], "dequeue_at": [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)] * 3}
    )
    text = columns.lines(batch.slice(1, 1), "> ", tasks={}, most=9)
    assert text is not None
    assert bytes(text) == b"> 0\t5\t0\tdefault\t\\N\t\\N\t\\N\t2\t\\N\n"


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
    """Row by row, a batch at a time, and for the callers of Python: the same limits."""
    check = CHECKS.get(column, lambda name: name_of(column, name))
    assert check(fit) == fit
    with pytest.raises(ValueError, match=r"is not|is neither|cannot be"):
        check(unfit)
    at_once, one_by_one, _ = both([{"content": "1", column: fit}])
    assert at_once == one_by_one
    assert both([{"content": "1", column: unfit}]) == (None, "", True)
