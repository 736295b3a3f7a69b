from __future__ import annotations

import atexit
import logging
import os
import sys
from importlib import import_module
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from django.apps import AppConfig
from django.db.backends.signals import connection_created

from tests.support.diary import Diary

TESTS = Path(__file__).resolve().parents[2]
FOLDERS = ("support/site", "tasks", "worker")
NOT_IMPORTED = {"tests.support.site.shelf", "tests.support.site.traced", "tests.worker.halfway"}
"""One needs apps that no worker has, one an extra, and a task imports the last one."""


def modules_of_tasks() -> list[str]:
    """Find the modules of tasks that are no app's ``tasks``: a worker runs what has been imported."""
    return [
        name
        for folder in FOLDERS
        for file in sorted((TESTS / folder).glob("[!t]*.py")) + sorted((TESTS / folder).glob("t[!e]*.py"))
        if (name := f"tests.{folder.replace('/', '.')}.{file.stem}") not in NOT_IMPORTED
        and "import task\n" in file.read_text(encoding="utf-8")
    ]


class WorkerTestsConfig(AppConfig):
    """Installed in the workers only."""

    name = "tests.support.site"

    def ready(self) -> None:
        for name in (*modules_of_tasks(), *os.environ.get("PGQUEUE_TEST_IMPORTS", "").split()):
            import_module(name)
        if os.environ.get("PGQUEUE_TEST_SIGNALS") == "1":
            listen()
        if os.environ.get("PGQUEUE_TEST_LOG") == "broken":
            logging.getLogger("django_pgqueue.worker").addFilter(misfilter)
        if os.environ.get("PGQUEUE_TEST_LOG") == "handled badly":
            logging.getLogger().addHandler(Mishandler())
        if os.environ.get("PGQUEUE_TEST_LOG") == "by a thread":
            log_by_a_thread()
        if "PGQUEUE_TEST_ON_CONNECT" in os.environ:
            connection_created.connect(set_on_connect, weak=False)
        if "PGQUEUE_TEST_SPANS" in os.environ:
            import tests.support.site.traced  # noqa: F401
            from tests.support.exporter import export_to_file

            export_to_file()


def set_on_connect(connection: Any, **_: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(os.environ["PGQUEUE_TEST_ON_CONNECT"])


def listen() -> None:
    from django_pgqueue.compat import task_finished, task_started

    for signal in (task_started, task_finished):
        signal.connect(misbehave, weak=False)
    task_finished.connect(write_finished, weak=False)


def write_finished(task_result: Any, **_: Any) -> None:
    error = sys.exc_info()[0]
    Diary.of_this_process().write("finished", id=task_result.id, error=error and error.__name__)


def misbehave(**_: Any) -> None:
    message = "this receiver is broken"
    raise RuntimeError(message)


class Mishandler(logging.Handler):
    """Sends lines to somebody who does not answer."""

    def emit(self, record: logging.LogRecord) -> None:
        message = f"this handler is broken: {record.name}"
        raise RuntimeError(message)


def log_by_a_thread() -> None:
    """As ``dictConfig`` sets up a ``QueueHandler`` from Python 3.12 on, and projects start it."""
    handler: Any = QueueHandler(SimpleQueue())
    shown = logging.StreamHandler(sys.stdout)
    shown.setFormatter(logging.Formatter("%(process)d %(message)s"))
    handler.listener = QueueListener(handler.queue, shown)
    handler.listener.start()
    atexit.register(handler.listener.stop)
    logging.getLogger().addHandler(handler)


def misfilter(record: logging.LogRecord) -> bool:
    if "id=" in record.getMessage():
        message = "this filter is broken"
        raise RuntimeError(message)
    return True
