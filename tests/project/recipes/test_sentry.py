"""Sentry's SDK in a worker, and a server that takes what it sends."""

from __future__ import annotations

import gzip
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.project.recipes.conftest import recipe
from tests.support.waiting import wait_until
from tests.support.watching import ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.fixtures.workers import Session, Start

pytest.importorskip("sentry_sdk", reason="sentry-sdk is not installed")
pytest.importorskip("structlog", reason="structlog is not installed")

from tests.project.recipes.failing import ask_again, fail, fail_on, fail_once


class Sentry:
    """A server that keeps what Sentry's would be told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.seconds = 0.0
        """How long it takes to answer."""
        events, sentry = self.events, self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                time.sleep(sentry.seconds)
                events.extend(events_of(body))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.dsn = f"http://public@127.0.0.1:{self.server.server_address[1]}/1"


def events_of(envelope: bytes) -> list[dict[str, Any]]:
    """The events in an envelope: a line of headers, then for each item a line of headers and its payload."""
    found, rest = [], envelope.partition(b"\n")[2]
    while rest.strip():
        head, _, rest = rest.partition(b"\n")
        headers = json.loads(head)
        size = headers.get("length", rest.find(b"\n") if b"\n" in rest else len(rest))
        payload, rest = rest[:size], rest[size:].removeprefix(b"\n")
        if headers["type"] == "event":
            found.append(json.loads(payload))
    return found


@pytest.fixture
def sentry() -> Iterator[Sentry]:
    sentry = Sentry()
    thread = threading.Thread(target=sentry.server.serve_forever)
    thread.start()
    yield sentry
    sentry.server.shutdown()
    sentry.server.server_close()
    thread.join()


SETTINGS = recipe("settings.py", "sentry_sdk.init")
FAILING = "tests.project.recipes.failing"
LINES = """
LOGGING = {
    "version": 1,
    "handlers": {"stdout": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}},
    "root": {"handlers": ["stdout"], "level": "INFO"},
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "settings"), [("text", ""), ("json", ""), ("text", LINES)], ids=["text", "JSON", "LOGGING"]
)
def test_a_failed_attempt_is_one_event_with_its_job(
    start: Start, project: Callable[..., dict[str, Any]], sentry: Sentry, form: str, settings: str
) -> None:
    """Threads, async tasks and two processes; each job has its own tags, and those of the settings."""
    variables = project(f"{SETTINGS}\nsentry_sdk.set_tag('of', 'the shop')\n{settings}")
    results = {f"{task.name} {n}": task.enqueue(f"{task.name} {n}") for task in (fail, fail_on) for n in range(6)}
    worker = start("--threads", "3", "--processes", "2", "--log-format", form, SENTRY_DSN=sentry.dsn, **variables)
    for result in results.values():
        ended(result)
    assert worker.stop() == 0  # what it has not sent yet, it sends at its end
    wait_until(lambda: len(sentry.events) >= len(results), "the events have come")
    assert len(sentry.events) == len(results)
    assert {event["exception"]["values"][-1]["value"] for event in sentry.events} == set(results)
    for event in sentry.events:
        result = results[event["exception"]["values"][-1]["value"]]
        path = result.task.module_path
        assert event["exception"]["values"][-1]["type"] == "VoucherExpired"
        assert event["transaction"] == path
        assert event["tags"].items() >= {
            "task": path, "queue": "default", "attempt": 1, "message_id": int(result.id),
            "word": event["exception"]["values"][-1]["value"], "of": "the shop",
        }.items()  # fmt: skip
        assert event["fingerprint"] == [path, f"{FAILING}.VoucherExpired"]
        assert event["logger"] == f"django_pgqueue.worker.{path}"


@pytest.mark.slow
def test_only_the_last_attempt_is_an_event(
    start: Start, project: Callable[..., dict[str, Any]], sentry: Sentry
) -> None:
    once, asked = fail_once.enqueue(), ask_again.using(max_attempts=None).enqueue()
    worker = start("--threads", "1", SENTRY_DSN=sentry.dsn, **project(SETTINGS))
    assert ended(once).status == "SUCCESSFUL"
    assert ended(asked).status == "FAILED"
    assert worker.stop() == 0
    wait_until(lambda: len(sentry.events) >= 2, "the events have come")
    told = {event["tags"]["message_id"]: event for event in sentry.events}
    assert len(sentry.events) == len(told) == 2
    assert told[int(once.id)]["logentry"]["message"] == "something else", "what a task logs has its job, too"
    assert told[int(once.id)]["tags"]["attempt"] == 2
    assert "fingerprint" not in told[int(once.id)]
    assert told[int(asked.id)]["exception"]["values"][-1]["type"] == "Retry"


@pytest.mark.slow
def test_jobs_that_could_not_be_run_are_events_too(
    start: Start, project: Callable[..., dict[str, Any]], sentry: Sentry, session: Session
) -> None:
    """Also those that are still to be sent when the worker ends, because Sentry is slow to answer."""
    sentry.seconds = 0.5
    for _ in range(3):
        session.rows("select pgqueue_message_create('[]', p_task => 'tests.project.recipes.failing.fail')")
    worker = start("--threads", "1", SENTRY_DSN=sentry.dsn, **project(SETTINGS))
    wait_until(lambda: worker.output.count("failed id=") == 3, "they have failed")
    assert worker.stop() == 0
    wait_until(lambda: len(sentry.events) == 3, "the events have come")
    assert {event["exception"]["values"][-1]["type"] for event in sentry.events} == {"InvalidContent"}
