"""Sentry's SDK in a worker, and a server that takes what it sends."""

from __future__ import annotations

import gzip
import json
import threading
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

from tests.project.recipes.failing import fail, fail_once


class Sentry:
    """A server that keeps what Sentry's would be told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        events = self.events

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
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


@pytest.mark.slow
def test_a_job_that_failed_is_one_event_with_the_name_of_the_job(
    start: Start, project: Callable[..., dict[str, Any]], sentry: Sentry
) -> None:
    variables = project(recipe("settings.py", "sentry_sdk.init"), shop_sentry=recipe("shop/sentry.py", "name_the_job"))
    worker = start("--threads", "1", SENTRY_DSN=sentry.dsn, **variables)
    once = ended(fail_once.enqueue())
    assert once.status == "SUCCESSFUL"
    results = [ended(fail.enqueue("first")), ended(fail.enqueue("second"))]
    assert worker.stop() == 0  # what it has not sent yet, it sends at its end
    wait_until(lambda: len(sentry.events) >= 3, "the events have come")
    logged, *failed = sentry.events
    assert logged["logentry"]["message"] == "something else", "the attempt that was retried is no event"
    assert logged["contexts"]["job"] == {"id": once.id, "attempt": 2}
    assert [event["exception"]["values"][-1]["value"] for event in failed] == ["first", "second"], "each of them once"
    assert len(sentry.events) == 3
    for event, result in zip(failed, results, strict=True):
        assert event["exception"]["values"][-1]["type"] == "VoucherExpired"
        assert event["transaction"] == "tests.project.recipes.failing.fail"
        assert event["contexts"]["job"]["id"] == result.id
        assert event["tags"]["queue"] == "default"


@pytest.mark.slow
def test_a_job_that_could_not_be_run_is_an_event_too(
    start: Start, project: Callable[..., dict[str, Any]], sentry: Sentry, session: Session
) -> None:
    variables = project(recipe("settings.py", "sentry_sdk.init"), shop_sentry=recipe("shop/sentry.py", "name_the_job"))
    session.rows("select pgqueue_message_create('[]', p_task => 'tests.project.recipes.failing.fail')")
    worker = start("--threads", "1", SENTRY_DSN=sentry.dsn, **variables)
    worker.says("failed id=")
    assert worker.stop() == 0
    [event] = wait_until(lambda: sentry.events, "the event has come")
    assert "InvalidContent" in event["logentry"]["formatted"]
