"""The lines of a worker as JSON: every one of them, with what is known, and without what messages say."""

from __future__ import annotations

import datetime as dt
import json
import logging
import multiprocessing
import queue
import sys
import threading
from collections.abc import Mapping
from logging.handlers import QueueHandler, QueueListener
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_pgqueue import functions
from django_pgqueue.logs import JsonFormatter, in_a_line
from django_pgqueue.worker.record.log import LoggedFacts
from django_pgqueue.worker.run.outcome import WITHOUT_RESULT, EndedAttempt
from django_pgqueue.worker.supervise import log_listeners
from tests.support.exporter import FILE, read
from tests.support.site.tasks import nothing
from tests.support.site.traced import look, pay, refuse

TRACED = "tests.support.site.traced"

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.workers import Start
    from tests.support.processes import QWorker


def lines(worker: QWorker) -> list[dict[str, Any]]:
    assert worker.ends() == 0
    return [json.loads(line) for line in worker.output.splitlines()]


def test_every_line_is_an_object_with_all_known_fields(start: Start) -> None:
    ids = [int(nothing.using(queue_name="mail", priority=7).enqueue().id), int(refuse.enqueue("bread").id)]
    found = lines(start("--burst", "--log-format", "json", ready=False, PGQUEUE_TEST_IMPORTS=TRACED))
    began, *attempts, _ = found
    assert (began["event"], began["slots"], began["queues"]) == ("started", 4, "all queues")
    [well] = [line for line in attempts if line.get("status") == "succeeded"]
    assert well.items() >= {
        "id": ids[0], "task": "tests.support.site.tasks.nothing", "queue": "mail", "priority": 7, "attempt": 1,
        "event": "succeeded", "level": "INFO", "logger": "django_pgqueue.worker", "worker": began["worker"],
    }.items()  # fmt: skip
    assert well["message"].startswith(f"succeeded id={ids[0]} task=")
    assert 0 <= well["ms"] < 10_000
    assert well["wait_ms"] > 0
    retried, failed = [line for line in attempts if line.get("id") == ids[1]]
    assert [retried["status"], retried["attempt"], failed["status"]] == ["retried", 1, "failed"]
    assert (failed["error_class"], failed["error_message"]) == ("builtins.ValueError", "no bread today")
    assert failed["traceback"].startswith("Traceback (most recent call last):\n")


def test_handlers_of_others_find_a_mapping() -> None:
    """OpenTelemetry's warned of each line that it has an object of an unknown type."""
    at = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
    message = {"id": 7, "task": "shop.pay", "queue": "mail", "channel": None, "priority": 0, "attempt": 1}
    message |= {"max_attempts": None, "worker": "host-1", "dequeue_at": 0, "created_at": at}
    begun = int(at.timestamp() * 1e6) + 1_000
    end: Any = EndedAttempt(SimpleNamespace(**message), WITHOUT_RESULT, begun, begun + 2_500)  # type: ignore[arg-type]
    facts = LoggedFacts(end, hidden=False)
    assert isinstance(facts, Mapping)
    assert (facts["status"], facts["id"], facts["ms"], len(facts)) == ("succeeded", 7, 2.5, 9)
    assert {name: facts[name] for name in facts} == dict(facts.items()) == json.loads(str(facts))


@pytest.mark.parametrize("form", ["json", "text"])
def test_sensitive_values_are_in_no_line(start: Start, form: str) -> None:
    pay.enqueue("4711-4711")
    worker = start("--burst", "--log-format", form, ready=False, PGQUEUE_TEST_IMPORTS=TRACED)
    assert worker.ends() == 0
    assert "failed" in worker.output
    assert "builtins.ValueError" in worker.output
    assert "4711-4711" not in worker.output


def test_lines_that_a_thread_of_the_project_writes_are_written(start: Start) -> None:
    """The thread of a ``QueueHandler`` is one of the supervisor, and no fork has it."""
    result = nothing.enqueue()
    worker = start("--burst", "--processes", "2", ready=False, PGQUEUE_TEST_LOG="by a thread")
    assert worker.ends() == 0
    said = [line.split()[:2] for line in worker.output.splitlines()]
    pids = [pid for pid, event in said if event == "started"]
    assert len(set(pids)) == len(pids) == 2
    assert [event for _, event in said].count("stopped") == 2, "nothing is written twice, and all of it at the end"
    assert f"succeeded id={result.id} " in worker.output


CANNOT = "A QueueListener of the logging cannot be started."


def test_handlers_of_one_listener_go_on_with_one_queue_and_a_listener_that_cannot_start_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stubborn(QueueListener):
        def start(self) -> None:
            message = "not now"
            raise RuntimeError(message)

    written: list[str] = []
    ends = logging.Handler()
    ends.emit = lambda record: written.append(record.getMessage())  # type: ignore[method-assign]
    before: queue.Queue[Any] = queue.Queue()
    listener, stubborn, shared = QueueListener(before, ends), Stubborn(queue.Queue()), Stubborn(multiprocessing.Queue())
    first, second, third, fourth = (QueueHandler(before) for _ in range(4))
    first.listener = second.listener = listener  # type: ignore[attr-defined]
    third.listener, fourth.listener = stubborn, shared  # type: ignore[attr-defined]
    listener.start()
    stubborn._thread = shared._thread = threading.main_thread()
    log_listeners.start_again()
    before.put_nowait(None)  # the end of the thread that a fork would have left behind
    for handler in (first, second):
        handler.handle(record("a line"))
    listener.stop()
    assert written == ["a line", "a line"]
    assert [line.getMessage() for line in caplog.records].count(CANNOT) == 1, "what processes share is not touched"


def test_a_line_names_its_trace(start: Start, tmp_path: Path) -> None:
    look.enqueue()
    worker = start(
        "--burst", "--log-format", "json", ready=False, options={"TRACES": True}, **{FILE: str(tmp_path / "spans")}
    )
    [well] = [line for line in lines(worker) if line.get("status") == "succeeded"]
    [span] = read(tmp_path / "spans")
    assert well["trace_id"] == span["trace"]


def record(message: str, *args: Any, name: str = "django_pgqueue.worker", **more: Any) -> logging.LogRecord:
    return logging.LogRecord(name, logging.INFO, __file__, 1, message, args, more.get("exc_info"))


def test_a_line_in_json_is_ascii_and_whole_text_so_that_any_stream_and_reader_takes_it() -> None:
    said = JsonFormatter().format(record("failed error=%s", "ungültig \udcc3 😀"))
    assert said.isascii()
    assert json.loads(said)["error"] == "ungültig ? 😀"


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        (record("lost id=%s task=%s: %s", 7, "a.b", object), {"event": "lost", "id": 7, "task": "a.b"}),
        (record("done in_seconds=%.1f share=%d%%", 1.23456, 5), {"event": "done", "in_seconds": 1.235, "share": 5}),
        (record("the reloader is gone"), {}),
        (record("id=%(id)s", {"id": 3}), {}),
        (record("id=%s", 3, name="somebody"), {}),
    ],
)
def test_the_fields_of_a_line_follow_its_template(said: logging.LogRecord, fields: dict[str, Any]) -> None:
    found = json.loads(JsonFormatter().format(said))
    assert {key: value for key, value in found.items() if key not in {"time", "level", "logger", "message"}} == fields
    assert found["message"] == said.getMessage()


def test_plain_values_of_extra_are_fields_and_objects_are_not() -> None:
    said = record("paid", name="shop")
    said.__dict__ |= {"order": 7, "fast": True, "level": "mine", "request": object(), "id": "of the order"}
    said.stack_info = "Stack (most recent call last):"
    found = json.loads(JsonFormatter().format(said))
    assert found.items() >= {"order": 7, "fast": True, "level": "INFO", "id": "of the order"}.items()
    assert found["stack"].startswith("Stack")
    assert "request" not in found


def test_a_traceback_is_a_field() -> None:
    try:
        raise ValueError("no")  # noqa: TRY301
    except ValueError:
        found = json.loads(JsonFormatter().format(record("broken", exc_info=sys.exc_info())))
    assert found["error_class"] == "builtins.ValueError"
    assert found["traceback"].endswith("ValueError: no")


def test_values_of_rows_begin_no_line_and_steer_no_terminal(start: Start) -> None:
    name = "x.y\n2026-01-01 00:00:00 ERROR forged id=1 \x1b[31m\u2028"
    for task in (name, "é" * 127):
        functions.enqueue(
            connection,
            functions.NewMessage(content='{"args": [], "kwargs": {}}', task=task, queue="q\nforged", max_attempts=1),
        )
    worker = start("--burst", ready=False)
    assert worker.ends() == 0
    assert "\x1b" not in worker.output
    ours = ("failed id=", "unknown task=")
    lines = [line for line in worker.output.splitlines() if "forged" in line]
    assert [line for line in lines if not any(words in line for words in ours)] == []
    assert "task=x.y\\n2026-01-01" in worker.output


@pytest.mark.parametrize("text", ["x" * 10_000_000, "\n" * 10_000_000, "\x1b" * 1000])
def test_the_length_of_a_line_is_limited(text: str) -> None:
    assert len(str(in_a_line(text))) < 3000
