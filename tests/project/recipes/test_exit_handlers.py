"""What a library has kept until the end of the program is not lost when a forked worker process ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.site.tasks import write
from tests.support.waiting import wait_until
from tests.support.watching import ended

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.fixtures.workers import Start

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

SETTINGS = """
import atexit, multiprocessing, os, tempfile, time
from concurrent.futures import ProcessPoolExecutor

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

SUPERVISOR, FOLDER = os.getpid(), os.environ["TOLD"]
HOURS = 3_600_000


def tell(what):
    if os.getpid() != SUPERVISOR:
        with open(os.path.join(FOLDER, f"{what}-{os.getpid()}"), "w") as file:
            file.write(what)


class Spans(SpanExporter):
    def export(self, spans):
        tell("spans")
        return SpanExportResult.SUCCESS


class Metrics(MetricExporter):
    def export(self, data, timeout_millis=0, **more):
        tell("metrics")
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=0):
        return True

    def shutdown(self, timeout_millis=0, **more): ...


def fail():
    raise ValueError("an exit handler has an error of its own")


forking = multiprocessing.get_context("fork")
executor = ProcessPoolExecutor(1, mp_context=forking)
daemon = forking.Process(target=time.sleep, args=(600,), daemon=True)
daemon.start()
with open(os.path.join(FOLDER, "of the supervisor"), "w") as file:
    file.write(f"{executor.submit(os.getpid).result()} {daemon.pid}")
atexit.register(tell, "handler")
atexit.register(fail)
KEPT = tempfile.TemporaryDirectory(dir=FOLDER, prefix="kept-")
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Spans(), schedule_delay_millis=HOURS))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(
    MeterProvider([PeriodicExportingMetricReader(Metrics(), export_interval_millis=HOURS)]),
)


def count_the_end(sender, **more):
    metrics.get_meter("shop").create_counter("jobs").add(1)
    trace.get_tracer("shop").start_span("job").end()
    atexit.register(tell, "late handler")
    if os.environ.get("HANGS"):
        atexit.register(time.sleep, 60)


try:
    from django.tasks.signals import task_finished
except ImportError:
    from django_tasks.signals import task_finished
task_finished.connect(count_the_end)
"""


def told(folder: Path) -> list[str]:
    return sorted({path.name.rpartition("-")[0] for path in folder.glob("*-*") if path.is_file()})


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.once
def test_a_worker_process_calls_the_exit_handlers_of_the_project(
    start: Start, project: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """One is replaced while the supervisor goes on, whose own things stay; the other one ends with it."""
    variables = project(SETTINGS)
    folder = tmp_path / "told"
    folder.mkdir()
    everything = ["handler", "late handler", "metrics", "spans"]
    result = write.enqueue("word")
    worker = start("--max-jobs", "1", TOLD=str(folder), **variables)
    ended(result)
    wait_until(lambda: told(folder) == everything, "the process that is replaced has called them")
    pid = int(next(folder.glob("handler-*")).name.partition("-")[2])
    wait_until(lambda: not is_there(pid), "it has ended")
    children = [int(number) for number in (folder / "of the supervisor").read_text().split()]
    assert [is_there(child) for child in children] == [True, True], "the executor and the daemon of its supervisor"
    assert [path for path in folder.iterdir() if path.is_dir()], "its supervisor has a temporary folder"
    for path in folder.glob("*-*"):
        if path.is_file():
            path.unlink()
    assert worker.stop() == 0, worker.output
    assert told(folder) == ["handler"], "the next process had no job"
    assert worker.output.count("ValueError: an exit handler has an error of its own") == 3
    assert [path for path in folder.iterdir() if path.is_dir()] == []


@pytest.mark.slow
@pytest.mark.once
def test_an_exit_handler_that_hangs_does_not_hold_the_worker_up(
    start: Start, project: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    ended_job = write.enqueue("word")
    worker = start(TOLD=str(tmp_path), HANGS="1", **project(SETTINGS))
    ended(ended_job)
    assert worker.stop() == 0, worker.output
    assert "exit handlers have not ended after 3 seconds" in worker.output
