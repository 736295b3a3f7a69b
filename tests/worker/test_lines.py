"""The lines of succeeded jobs, which are written in batches."""

from __future__ import annotations

import io
import logging
import os
import re
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.management.terminal.colours import Coloured
from django_pgqueue.worker.record.lines import MAX_WAITING, PLAIN, TIME, LineHandler
from django_pgqueue.worker.record.log import EndLog, log_end
from django_pgqueue.worker.run.outcome import WITHOUT_RESULT, Deferred, EndedAttempt
from tests.support.site.tasks import nothing
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.fixtures.workers import Start

NOON_US = 1_795_608_000_000_000
LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO    succeeded id=(\d+) task=\S+ attempt=1 ms=\d+\.\d$")


@contextmanager
def handled_by(handler: logging.Handler) -> Iterator[logging.Logger]:
    """The logger of the package, as in a process in which nobody but qworker has configured anything."""
    ours, root = logging.getLogger("django_pgqueue"), logging.getLogger()
    before = ours.handlers, ours.level, root.handlers
    ours.handlers, root.handlers = [handler], []
    ours.setLevel(logging.INFO)
    try:
        yield ours
    finally:
        ours.handlers, level, root.handlers = before
        ours.setLevel(level)


def handler(formatter: type[logging.Formatter] = logging.Formatter) -> LineHandler:
    return LineHandler(io.StringIO(), formatter(PLAIN))


def text_of(handler: LineHandler) -> str:
    return str(handler.stream.getvalue())  # type: ignore[attr-defined]


def written(handler: LineHandler) -> list[str]:
    handler.flush()
    assert text_of(handler).endswith("\n")
    return text_of(handler).splitlines()


def end(outcome: Any = WITHOUT_RESULT, *, message_id: int = 7, task: str = "shop.tasks.pay") -> EndedAttempt:
    message: Any = SimpleNamespace(id=message_id, task=task, attempt=1)
    return EndedAttempt(message, outcome, NOON_US, NOON_US + 2_500)


SETTINGS: Any = None
"""Only the error of an attempt needs them."""


@pytest.mark.parametrize("formatter", [logging.Formatter, Coloured])
@pytest.mark.parametrize("task", ["shop.tasks.pay", "shop.tasks.pay\nERROR all is lost"])
def test_a_line_is_as_logging_would_have_written_it(formatter: type[logging.Formatter], task: str) -> None:
    lines, records = handler(formatter), handler(formatter)
    lines.succeeded(end(task=task))
    with handled_by(records):
        log_end(end(task=task), SETTINGS)
    assert [line[TIME:] for line in written(lines)] == [line[TIME:] for line in written(records)]


def test_lines_keep_their_order_beside_records() -> None:
    lines = handler()
    with handled_by(lines) as logger:
        log = EndLog(SETTINGS)
        log(end(message_id=1))
        log(end(Deferred(2.0, None), message_id=2))
        log(end(message_id=3))
        logger.info("stopped")
    assert [line.split()[3:5] for line in written(lines)][:3] == [
        ["succeeded", "id=1"], ["deferred", "id=2"], ["succeeded", "id=3"],
    ]  # fmt: skip
    assert written(lines)[3].endswith("stopped")


def test_a_line_is_written_soon_without_any_other() -> None:
    lines = handler()
    lines.succeeded(end())
    wait_until(lambda: "succeeded id=7" in text_of(lines), "its thread writes it")


def test_a_stream_that_was_closed_is_no_error_of_the_thread() -> None:
    lines = handler()
    lines.stream.close()
    lines.succeeded(end())
    wait_until(lambda: not lines._waiting, "its thread has tried")
    lines.succeeded(end())
    with handled_by(lines) as logger:
        logger.info("nor of whoever logs")
    lines.stream = io.StringIO()
    lines.succeeded(end(message_id=8))
    wait_until(lambda: "succeeded id=8" in text_of(lines), "it goes on")


def test_the_thread_goes_on_after_any_error() -> None:
    class Short(io.StringIO):
        def write(self, text: str) -> int:
            raise MemoryError(len(text))

    lines = LineHandler(Short(), logging.Formatter(PLAIN))
    lines.succeeded(end())
    wait_until(lambda: not (lines._woken.is_set() or lines._waiting), "its thread has tried")
    lines.stream = io.StringIO()
    lines.succeeded(end(message_id=8))
    wait_until(lambda: "succeeded id=8" in text_of(lines), "it goes on")


def test_letters_that_the_stream_lacks_are_written_as_numbers(tmp_path: Path) -> None:
    with (tmp_path / "lines").open("w", encoding="ascii") as stream:
        lines = LineHandler(stream, logging.Formatter(PLAIN))
        for number, task in enumerate(["shop.tasks.pay", "shop.tasks.zählen", "shop.tasks.pay"]):
            lines.succeeded(end(message_id=number, task=task))
        with handled_by(lines) as logger:
            logger.error("failed id=3 error=%s", "ValueError: ungültig \udcc3")
    written = (tmp_path / "lines").read_text().splitlines()
    assert [line.split("id=")[1].split()[0] for line in written] == ["0", "1", "2", "3"]
    assert "task=shop.tasks.z\\xe4hlen" in written[1]
    assert written[3].endswith("ung\\xfcltig \\udcc3")


def test_a_process_that_can_start_no_thread_writes_by_its_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError

    lines = handler()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        lines.succeeded(end(message_id=1))
    assert "succeeded id=1" in text_of(lines)
    lines.succeeded(end(message_id=2))
    wait_until(lambda: "succeeded id=2" in text_of(lines), "a thread writes again")


def test_a_slow_terminal_holds_up_the_slots_and_loses_nothing() -> None:
    lines = handler()
    for number in range(2 * MAX_WAITING + 10):
        lines.succeeded(end(message_id=number))
    assert [int(line.split("id=")[1].split()[0]) for line in written(lines)] == list(range(2 * MAX_WAITING + 10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_forked_process_does_not_write_the_lines_of_its_parent(tmp_path: Path) -> None:
    with (tmp_path / "lines").open("w") as stream:
        lines = LineHandler(stream, logging.Formatter(PLAIN))
        lines.succeeded(end(message_id=1))
        lines.flush()
        lines.succeeded(end(message_id=2))
        if (child := os.fork()) == 0:  # pragma: no cover
            lines.succeeded(end(message_id=3))
            lines.flush()
            os._exit(0)
        os.waitpid(child, 0)
        lines.flush()
    ids = [line.split("id=")[1].split()[0] for line in (tmp_path / "lines").read_text().splitlines()]
    assert sorted(ids) == ["1", "2", "3"]


@pytest.mark.parametrize("how", ["another handler", "a filter", "a handler of the root", "JSON"])
def test_a_project_that_handles_records_gets_one_for_each_job(how: str) -> None:
    got: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            got.append(record.getMessage())

    def note(record: logging.LogRecord) -> bool:
        got.append(record.getMessage())
        return True

    lines = handler()
    with handled_by(lines) as logger:
        match how:
            case "another handler":
                logger.addHandler(Collector())
            case "a filter":
                lines.addFilter(note)
            case "a handler of the root":
                logging.getLogger().addHandler(Collector())
            case "JSON":
                logger.handlers = [Collector()]
        EndLog(SETTINGS)(end())
    assert len(got) == 1
    assert got[0].startswith("succeeded id=7 task=shop.tasks.pay")


def test_a_worker_writes_a_line_for_each_job_before_it_ends(start: Start) -> None:
    ids = {nothing.enqueue().id for _ in range(300)}
    worker = start("--burst", ready=False)
    assert worker.ends() == 0
    found = [match for line in worker.output.splitlines() if (match := LINE.match(line))]
    assert {match[1] for match in found} == ids
    assert len(found) == 300
    assert "stopped worker=" in worker.output.splitlines()[-1]
