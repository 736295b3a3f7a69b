"""One trace, from the request of a browser to the job that a worker runs, and on to the jobs of that job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from opentelemetry.instrumentation.django import DjangoInstrumentor

from django_pgqueue.durable import emit
from tests.support.site import traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test import Client
    from pytest_django import Settings

    Work = Callable[..., list[dict[str, Any]]]
    Spans = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def instrumented(settings: Settings, spans: Spans) -> Iterator[None]:
    """As a project has it that follows OpenTelemetry's documentation."""
    settings.ROOT_URLCONF = "tests.traces.urls"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE]
    DjangoInstrumentor().instrument()
    yield
    DjangoInstrumentor().uninstrument()


def test_the_job_belongs_to_the_trace_of_the_request(
    client: Client, instrumented: None, spans: Spans, work: Work
) -> None:
    answer = client.get("/buy/")
    # More processes than one: what is flushed was not kept by the supervisor.
    jobs = {span["name"]: span for span in work("--processes", "2")}
    here = {span["name"]: span for span in spans()}
    request, enqueued = here["GET buy/"], here["enqueue tests.support.site.traced.order"]
    job, charge = jobs["process tests.support.site.traced.order"], jobs["charge"]
    again, last = jobs["enqueue tests.support.site.traced.look"], jobs["process tests.support.site.traced.look"]
    chain = [request, enqueued, job, charge, again, last]
    assert {span["trace"] for span in chain} == {request["trace"]}
    assert [span["parent"] for span in chain[1:]] == [span["id"] for span in chain[:-1]]
    assert job["links"] == [enqueued["id"]]
    assert [span["kind"] for span in chain] == ["SERVER", "PRODUCER", "CONSUMER", "INTERNAL", "PRODUCER", "CONSUMER"]
    assert enqueued["attributes"]["messaging.message.id"] == answer.content.decode()
    assert (
        job["attributes"].items()
        >= {
            "messaging.system": "pgqueue",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "default",
            "messaging.message.id": answer.content.decode(),
            "pgqueue.task": "tests.support.site.traced.order",
            "pgqueue.attempt": 1,
            "pgqueue.outcome": "succeeded",
        }.items()
    )
    assert "--" not in str(job["attributes"]["messaging.client.id"])


def test_async_and_atomic_tasks_continue_the_trace(spans: Spans, work: Work, transactional_db: None) -> None:
    tasks = [traced.order_on, traced.order_atomically]
    for task in tasks:
        cast("Any", task).enqueue(3)
    ended = work()
    for task, enqueued in zip(tasks, spans(), strict=True):
        jobs = {span["name"]: span for span in ended if span["trace"] == enqueued["trace"]}
        job, charge = jobs[f"process {task.module_path}"], jobs["charge"]
        again, last = jobs["enqueue tests.support.site.traced.look"], jobs["process tests.support.site.traced.look"]
        chain = [enqueued, job, charge, again, last]
        assert [span["parent"] for span in chain] == [None, *(span["id"] for span in chain[:-1])]


def test_each_attempt_has_a_span_with_its_outcome(spans: Spans, work: Work, transactional_db: None) -> None:
    traced.refuse.enqueue("bread")
    traced.come_back.enqueue()
    jobs = work()
    refused = [span for span in jobs if span["name"].endswith("refuse")]
    assert [span["attributes"]["pgqueue.outcome"] for span in refused] == ["retried", "failed"]
    assert [span["attributes"]["pgqueue.attempt"] for span in refused] == [1, 2]
    assert {span["status"] for span in refused} == {"ERROR"}
    assert {span["why"] for span in refused} == {"builtins.ValueError: no bread today"}
    assert {span["trace"] for span in refused} == {spans()[0]["trace"]}
    [event] = refused[0]["events"]
    assert event["exception.type"] == refused[0]["attributes"]["error.type"] == "builtins.ValueError"
    assert "raise ValueError(message)" in event["exception.stacktrace"]
    back = [span for span in jobs if span["name"].endswith("come_back")]
    assert [(span["attributes"]["pgqueue.outcome"], span["status"]) for span in back] == [
        ("deferred", "UNSET"),
        ("succeeded", "UNSET"),
    ]


def test_steps_and_children_of_a_durable_task_are_in_one_trace_whichever_worker_goes_on(
    spans: Spans, work: Work, transactional_db: None
) -> None:
    """A step is a span of the attempt that runs it; where its record is read, there is none."""
    result = traced.in_steps.enqueue()
    work()
    emit("paid")
    ended = work()  # those of the first worker are in the file, too
    [enqueued] = spans()
    assert {span["trace"] for span in ended} == {enqueued["trace"]}
    attempts = [span for span in ended if span["name"] == f"process {traced.in_steps.module_path}"]
    assert [span["attributes"]["pgqueue.outcome"] for span in attempts] == [
        "retried", "suspended", "suspended", "succeeded",
    ]  # fmt: skip
    assert {span["parent"] for span in attempts} == {enqueued["id"]}
    first, second, _, last = attempts
    steps = [span for span in ended if span["name"].startswith("step ")]
    assert [(span["attributes"]["pgqueue.step"], span["parent"], span["status"]) for span in steps] == [
        ("first", first["id"], "UNSET"), ("second", first["id"], "ERROR"), ("third", last["id"], "UNSET"),
    ]  # fmt: skip
    assert steps[1]["attributes"]["error.type"] == "builtins.ValueError"
    assert steps[0]["exported_by"] != steps[2]["exported_by"]
    [enqueues, child] = (span for span in ended if span["name"].endswith("look"))
    assert [enqueues["parent"], child["parent"]] == [second["id"], enqueues["id"]]
    assert len(ended) == len(attempts) + len(steps) + 2
    result.refresh()
    assert result.return_value == [child["id"], steps[2]["id"]], "nothing else was current there"


def test_sensitive_values_are_in_no_span(spans: Spans, work: Work, transactional_db: None) -> None:
    traced.pay.enqueue("4711-4711")
    traced.refuse.enqueue("secret bread")
    for jobs in (work(), spans()):
        assert "4711" not in str(jobs)
    traced.refuse.enqueue("other bread")
    jobs = [span for span in work(SENSITIVE=True) if span["attributes"].get("pgqueue.outcome") == "failed"]
    assert [span["why"] for span in jobs] == [
        "builtins.ValueError", "builtins.ValueError: no secret bread today", "builtins.ValueError",
    ]  # fmt: skip
    assert jobs[-1]["events"] == [{"name": "exception", "exception.type": "builtins.ValueError"}]


def test_the_spans_of_an_attempt_whose_time_is_up_end_with_it(spans: Spans, work: Work, transactional_db: None) -> None:
    traced.oversleep.enqueue()
    [step, job] = work("--grace-seconds", "0.1")
    assert (step["name"], step["parent"]) == ("step nap", job["id"])
    assert job["attributes"]["pgqueue.outcome"] == "failed"
    assert {span["attributes"]["error.type"] for span in (step, job)} == {"django_pgqueue.exceptions.TaskTimeout"}


def test_a_worker_without_the_setting_makes_no_spans(spans: Spans, work: Work, transactional_db: None) -> None:
    traced.look.enqueue()
    assert work(TRACES=False) == []
