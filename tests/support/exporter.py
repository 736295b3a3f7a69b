"""Where the spans of worker processes go: a file that the test reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

FILE = "PGQUEUE_TEST_SPANS"


class FileExporter(SpanExporter):
    """A line for each span; what is appended at once stays together."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lines = "".join(json.dumps({"exported_by": os.getpid(), **facts(span)}) + "\n" for span in spans)
        with self.path.open("a") as file:
            file.write(lines)
        return SpanExportResult.SUCCESS


def facts(span: ReadableSpan) -> dict[str, Any]:
    context, parent = span.get_span_context(), span.parent
    assert context is not None
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": f"{context.trace_id:032x}",
        "id": f"{context.span_id:016x}",
        "flags": f"{context.trace_flags:02x}",
        "parent": parent and f"{parent.span_id:016x}",
        "links": [f"{link.context.span_id:016x}" for link in span.links],
        "attributes": dict(span.attributes or {}),
        "status": span.status.status_code.name,
        "why": span.status.description,
        "events": [{"name": event.name, **(event.attributes or {})} for event in span.events],
    }


def export_to_file() -> None:
    """As a project does it in its settings, before the worker has started its processes."""
    provider = TracerProvider()
    # Only a flush brings these out in the time of a test: what a process does not flush when it leaves is lost.
    provider.add_span_processor(
        BatchSpanProcessor(FileExporter(Path(os.environ[FILE])), schedule_delay_millis=3_600_000)
    )
    trace.set_tracer_provider(provider)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
