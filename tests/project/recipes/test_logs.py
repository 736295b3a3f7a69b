"""The log of a project in a worker: each line names its job, and a failure is one line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.compat import TASKS_LOGGER
from tests.project.recipes.conftest import recipe
from tests.support.pages import FOLDER
from tests.support.watching import ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fixtures.workers import Start

pytest.importorskip("structlog", reason="structlog is not installed")

from tests.project.recipes.failing import ask_again, fail, log, log_on

MONITORING = FOLDER / "operate" / "monitoring.md"
TO_STDOUT = "\nLOGGING['handlers']['stdout']['stream'] = 'ext://sys.stdout'\n"
ADMIN_MAILS = """
ADMINS = ["ada@example.com"] if django.VERSION >= (6, 0) else [("Ada", "ada@example.com")]
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["the filter", "the formatter", "the flag"])
def test_each_line_that_a_task_logs_names_its_job(
    start: Start, project: Callable[..., dict[str, Any]], form: str
) -> None:
    """Threads and coroutines of two processes; a thread of a task's own, and Django's thread for sync_to_async."""
    words = {"the filter": "JobFilter", "the formatter": "JsonFormatter"}
    settings = recipe("settings.py", words[form], MONITORING) + TO_STDOUT if form in words else ""
    variables = project(settings)
    results = {
        f"{task.name} {number}": task.using(queue_name="mail").enqueue(f"{task.name} {number}")
        for task in (log, log_on)
        for number in range(6)
    }
    flags = ["--log-format", "json"] if form == "the flag" else []
    worker = start("--threads", "2", "--processes", "2", *flags, **variables)
    for result in results.values():
        assert ended(result).status == "SUCCESSFUL"
    assert worker.stop() == 0
    lines = [line for line in worker.output.splitlines() if "said: " in line]
    if form == "the flag":
        assert not lines, "the flag is for the lines of the worker"
        return
    assert len(lines) == 2 * len(results), "each says it in its thread or coroutine, and in another thread"
    for line in lines:
        word = line.partition("said: ")[2].partition('"')[0].partition(" id=")[0]
        path = results[word].task.module_path
        if form == "the filter":
            assert line.endswith(f" id={results[word].id} task={path} attempt=1 queue=mail")
        else:
            about = {"id": int(results[word].id), "task": path, "attempt": 1, "queue": "mail"}
            assert json.loads(line).items() >= about.items()
    begin = [line for line in worker.output.splitlines() if "started worker=" in line]
    assert len(begin) == 2
    assert not any("id=" in line or '"id"' in line for line in begin)


@pytest.mark.slow
@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_failure_is_one_line_with_its_traceback(
    start: Start, project: Callable[..., dict[str, Any]], debug: str
) -> None:
    """Also where Django's LOGGING prints its own lines, and mails errors to ADMINS."""
    failed = fail.enqueue("forged\n2026-11-20 11:25:20,914 ERROR   failed id=99")
    asked = ask_again.enqueue()
    worker = start("--threads", "1", **project(ADMIN_MAILS), PGQUEUE_TEST_DEBUG=debug)
    assert {ended(failed).status, ended(asked).status} == {"FAILED"}
    assert worker.stop() == 0
    lines = worker.output.splitlines()
    mails = [line for line in lines if line.startswith("Subject: ")]
    told = [match[1] for line in lines if (match := re.match(r"\d{4}-\S+ \S+ ERROR   failed id=(\d+) task=", line))]
    assert told == [failed.id, asked.id]
    assert worker.output.count("    Traceback (most recent call last):") == 2
    assert f"{failed.id} path=" not in worker.output, "Django's line"
    # The log of the backport for Django 5.2 is not below "django", and so it has no such mails.
    assert len(mails) == (2 if debug == "0" and TASKS_LOGGER.startswith("django.") else 0)


@pytest.mark.slow
def test_the_logger_of_a_task_has_its_own_level(start: Start, project: Callable[..., dict[str, Any]]) -> None:
    settings = recipe("settings.py", "disable_existing_loggers", MONITORING)
    path = "shop.tasks.call_courier"
    assert path in settings
    result = ask_again.enqueue()
    worker = start("--threads", "1", **project(settings.replace(path, result.task.module_path)))
    assert ended(result).status == "FAILED"
    assert worker.stop() == 0
    assert "retried" not in worker.output
    assert worker.output.count("failed id=") == 1
