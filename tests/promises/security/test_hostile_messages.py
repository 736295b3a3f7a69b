"""Any row that a hostile producer could insert ends as an attempt, and the worker goes on."""

from __future__ import annotations

import json
import sys

import pytest
from django.db import connection, transaction
from hypothesis import example, given, strategies as st

from django_pgqueue import functions
from django_pgqueue.compat import task_backends
from django_pgqueue.models import Attempt, Message
from django_pgqueue.testing.drain import InsideTheTest
from django_pgqueue.values.times import microseconds
from django_pgqueue.worker.record import record
from django_pgqueue.worker.run.progress import DirectReports
from tests.promises.security.fuzzing import fuzz, text
from tests.support.site import tasks

pytestmark = pytest.mark.django_db

NOTHING = f"{tasks.__name__}.nothing"
WITH_SIDE_EFFECTS = "antigravity"
HOSTILE_NAMES = [
    "os.system",
    "builtins.eval",
    "__main__.x",
    "tests.__main__.main",
    f"{NOTHING}.func",
    f"{NOTHING}.__class__",
    f"{NOTHING}.func.__globals__",
    "tests.support.site.tasks.__builtins__",
    "tests.support.site.tasks.__loader__",
    "django_pgqueue.worker.__path__",
    f"{WITH_SIDE_EFFECTS}.fly",
    "this.s",
    "..",
    "a..b",
    "\u202enothing.sksat",
    "'; drop table pgqueue_message; --",
    "%s%(x)s{0}",
    "",
]
NO_CALL = '{"args": [], "kwargs": {}}'

number = st.integers().map(str) | st.sampled_from(["1e400", "-1e400", "0.1e-400", "9" * 5_000, "-0", "1.0"])
scalar = number | st.sampled_from(["null", "true", "false"]) | text.map(json.dumps)
KEYS = ["args", "kwargs", "run_after", "delay_us", "traceparent", "tracestate", "self", "__class__"]
keys = text | st.sampled_from(KEYS)


def written(pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in pairs) + "}"


jsons = st.recursive(
    scalar,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(st.tuples(keys, inner), max_size=4).map(written)
    ),
    max_leaves=8,
)
calls = st.builds(lambda args, kwargs: written([("args", args), ("kwargs", kwargs)]), jsons, jsons)
contents = jsons | calls | st.just(NO_CALL)
names = st.sampled_from([*HOSTILE_NAMES, NOTHING, NOTHING, NOTHING]) | text
DEEP = "[" * 3_000 + "]" * 3_000


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_only_registered_tasks_run_whatever_a_message_names(name: str) -> None:
    already = set(sys.modules)
    assert ended(task=name, content='{"args": ["echo"], "kwargs": {}}', headers=None) == "failed"
    assert WITH_SIDE_EFFECTS not in set(sys.modules) - already
    assert "this" not in set(sys.modules) - already


@given(names, contents, st.none() | jsons, st.none() | text.filter(bool))
@example(NOTHING, NO_CALL, None, None)
@example(NOTHING, DEEP, None, None)
@example(NOTHING, f'{{"args": {DEEP}, "kwargs": {{}}}}', DEEP, None)
@example(NOTHING, f'{{"args": ["{"x" * 5_000_000}"], "kwargs": {{}}}}', None, None)
@example(NOTHING, NO_CALL, '{"delay_us": 1e300}', None)
@example(NOTHING, NO_CALL, '{"run_after": "0000-99-99T99:99"}', None)
@fuzz(few=60)
def test_any_row_ends_as_an_attempt(task: str, content: str, headers: str | None, channel: str | None) -> None:
    status = ended(task=task, content=content, headers=headers, channel=channel)
    assert status == "failed" or (task, status) == (NOTHING, "succeeded")


def ended(**columns: str | None) -> str:
    """How the message ended; everything is taken back."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                f"insert into pgqueue_message (dequeue_at, max_attempts, {', '.join(columns)}) "
                f"values (0, 1, {', '.join(['%s'] * len(columns))})",
                list(columns.values()),
            )
        [message] = functions.message_dequeue(connection, queues=None, lock_ms=60_000, worker="fuzz", tasks=True)
        end = InsideTheTest(
            message,
            backend=task_backends["default"],  # type: ignore[arg-type]
            clock=lambda: microseconds(functions.now(connection)),
            reports=DirectReports(connection),
        ).run()
        record(connection, [end], worker="fuzz")
        [(status, error_class, error)] = Attempt.objects.values_list("status", "error_class", "error_message")
        assert not Message.objects.exists()
        assert status == "succeeded" or (error_class and error is not None)
        transaction.set_rollback(True)
    return str(status)
