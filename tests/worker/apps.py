from __future__ import annotations

import logging
import os
import sys
from typing import Any

from django.apps import AppConfig

from tests.worker.diary import Diary


class WorkerTestsConfig(AppConfig):
    """Installed in the workers only."""

    name = "tests.worker"

    def ready(self) -> None:
        if os.environ.get("PGQUEUE_TEST_SIGNALS") == "1":
            listen()
        if os.environ.get("PGQUEUE_TEST_LOG") == "broken":
            logging.getLogger("django_pgqueue.worker").addFilter(misfilter)
        if "PGQUEUE_TEST_SPANS" in os.environ:
            from tests.traces.exporter import export_to_file

            export_to_file()


def listen() -> None:
    from django_pgqueue.compat import task_finished, task_started

    for signal in (task_started, task_finished):
        signal.connect(misbehave, weak=False)
    task_started.connect(write_started, weak=False)
    task_finished.connect(write_finished, weak=False)


def write_started(sender: type, task_result: Any, **_: Any) -> None:
    write("started", sender, task_result)


def write_finished(sender: type, task_result: Any, **_: Any) -> None:
    error = sys.exc_info()[0]
    write("finished", sender, task_result, error=error and error.__name__)


def write(word: str, sender: type, task_result: Any, **facts: Any) -> None:
    Diary.of_this_process().write(
        word,
        id=task_result.id,
        sender=f"{sender.__module__}.{sender.__qualname__}",
        status=str(task_result.status),
        attempts=task_result.attempts,
        **facts,
    )


def misbehave(task_result: Any, **_: Any) -> None:
    if task_result.args == ["leave"]:
        raise SystemExit(6)
    message = "this receiver is broken"
    raise RuntimeError(message)


def misfilter(record: logging.LogRecord) -> bool:
    if "id=" in record.getMessage():
        message = "this filter is broken"
        raise RuntimeError(message)
    return True
