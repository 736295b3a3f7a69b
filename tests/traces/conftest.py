"""Traces of this process, kept in memory, and those of real workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.exporter import FILE, facts, read
from tests.support.fixtures.workers import diary, environment, rows, session, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_django import Settings

    from tests.support.fixtures.workers import Start
    from tests.support.processes import QWorker

__all__ = ["diary", "environment", "rows", "session", "start"]

BACKEND = "django_pgqueue.backend.PgQueueBackend"


@pytest.fixture(scope="session")
def memory() -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)  # once a process: so OpenTelemetry wants it
    return exporter


@pytest.fixture
def traced(settings: Settings) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"TRACES": True}}}


@pytest.fixture
def spans(memory: InMemorySpanExporter, traced: None) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The spans that have ended in this process."""
    memory.clear()
    yield lambda: [facts(span) for span in memory.get_finished_spans()]
    memory.clear()


@pytest.fixture
def work(start: Start, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Lets real workers do what is there, and answers their spans."""

    def work(*arguments: str, **options: Any) -> list[dict[str, Any]]:
        worker = begin(*arguments, **options)
        assert worker.ends() == 0, worker.output
        return read(tmp_path / "spans")

    def begin(*arguments: str, **options: Any) -> QWorker:
        return start(
            "--burst", *arguments, ready=False, options={"TRACES": True, **options}, **{FILE: str(tmp_path / "spans")}
        )

    return work
