"""Headers that an enqueue writes, and the spans of raw messages."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest
from opentelemetry import trace

from django_pgqueue import checks, traces
from django_pgqueue.backend import Call, enqueue_many
from django_pgqueue.models import Message
from django_pgqueue.queue import Queue
from django_pgqueue.routing import Exchange
from tests.support.site import traced as tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_django import Settings

    Spans = Callable[[], list[dict[str, Any]]]

pytestmark = pytest.mark.django_db


def headers() -> list[Any]:
    return list(Message.objects.order_by("id").values_list("headers", flat=True))


def traceparent(span: dict[str, Any]) -> str:
    return f"00-{span['trace']}-{span['id']}-{span['flags']}"


def test_the_headers_keep_their_other_keys(spans: Spans) -> None:
    tasks.look.using(run_after=dt.timedelta(seconds=3)).enqueue()
    Queue("yard").send({}, headers={"by": "Ada"})
    [first, second] = spans()
    assert headers() == [
        {"delay_us": 3_000_000, "traceparent": traceparent(first)},
        {"by": "Ada", "traceparent": traceparent(second)},
    ]
    assert (first["name"], second["name"]) == ("enqueue tests.support.site.traced.look", "enqueue yard")


def test_an_enqueue_that_is_only_rehearsed_has_no_span(spans: Spans) -> None:
    backend: Any = tasks.look.get_backend()
    backend.rehearse(tasks.look, [], {})
    assert (spans(), headers()) == ([], [None])


def test_a_trace_set_by_the_sender_stays(spans: Spans) -> None:
    Queue("yard").send({}, headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    assert headers() == [{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}]


@pytest.mark.parametrize("alike", [True, False])
def test_many_messages_have_one_span(spans: Spans, *, alike: bool) -> None:
    enqueue_many(tasks.order, range(3) if alike else [Call((1,), priority=n) for n in range(3)])
    [span] = spans()
    assert headers() == [{"traceparent": traceparent(span)}] * 3
    assert span["attributes"]["messaging.batch.message_count"] == 3


def test_a_receive_span_links_to_the_spans_that_sent_the_messages(spans: Spans) -> None:
    queue = Queue("yard")
    queue.send_many([1, 2])
    queue.send(3)
    assert queue.receive() is not None
    queue.receive_many(5)
    assert queue.receive() is None
    many, one, first, rest = spans()
    assert (first["name"], first["kind"], first["links"]) == ("receive yard", "CONSUMER", [many["id"]])
    assert rest["links"] == [many["id"], one["id"]]
    assert rest["attributes"]["messaging.batch.message_count"] == 2


def test_a_raw_consumer_continues_the_trace(spans: Spans) -> None:
    queue = Queue("yard")
    queue.send({"n": 1})
    message = queue.receive()
    assert message is not None
    with traces.processing(message):
        queue.send({"n": 2})
        message.complete()
    sent, _, again, processed = spans()
    assert processed["name"] == "process yard"
    assert [sent["id"], processed["id"]] == [processed["parent"], again["parent"]]


def test_an_error_of_a_raw_consumer_is_recorded(spans: Spans, settings: Settings) -> None:
    Queue("yard").send({})
    message = Queue("yard").receive()
    assert message is not None
    with pytest.raises(ValueError, match="not today"), traces.processing(message):
        raise ValueError("not today")
    options = {**settings.TASKS["default"]["OPTIONS"], "SENSITIVE": ["card"]}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    with pytest.raises(ValueError, match="not today"), traces.processing(message):
        raise ValueError("not today")
    assert [span["why"] for span in spans()[2:]] == ["builtins.ValueError: not today", "builtins.ValueError"]


def test_a_published_message_continues_the_trace(spans: Spans) -> None:
    exchange = Exchange("orders")
    exchange.declare()
    exchange.bind("#", queue="yard")
    exchange.bind("order.*", queue="audit")
    exchange.publish("order.created", {})
    [span] = spans()
    assert [said["traceparent"] for said in headers()] == [traceparent(span)] * 2


@pytest.mark.parametrize("broken", ["{", "[1]", '"text"', '{"traceparent": 5}', '{"traceparent": "x"}'])
def test_headers_without_a_valid_trace_are_ignored(spans: Spans, broken: str) -> None:
    from django_pgqueue.traces.conventions import creation_context

    assert creation_context(broken) is None


def test_a_refused_enqueue_is_an_error_of_its_span_without_its_content(spans: Spans) -> None:
    with pytest.raises(Exception, match="4711"):
        cast("Any", tasks.look).enqueue({4711: 1})
    assert [span["status"] for span in spans()] in ([], ["ERROR"])
    assert "4711" not in str(spans())


def test_without_the_setting_headers_have_no_trace(memory: Any) -> None:
    with trace.get_tracer("mine").start_as_current_span("request"):
        tasks.look.enqueue()
        Queue("yard").send({})
    assert headers() == [None, None]


def test_the_package_imports_nothing_of_its_extras_by_itself() -> None:
    program = (
        "import os, sys; os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.support.site.settings'; "
        "import django; django.setup();"
        "import django_pgqueue.management.commands.qworker, django_pgqueue.queue, django_pgqueue.bulk;"
        "extras = {'opentelemetry', 'prometheus_client', 'pyspark', 'pyarrow', 'polars', 'rich', 'psycopg_pool'};"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & extras))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_check_reports_missing_opentelemetry(monkeypatch: pytest.MonkeyPatch, traced: None) -> None:
    assert checks.check_backends(None) == []
    monkeypatch.setattr(traces, "is_installed", lambda: False)
    assert [problem.id for problem in checks.check_backends(None)] == ["pgqueue.E009"]
    tasks.look.enqueue()
    assert headers() == [None]
