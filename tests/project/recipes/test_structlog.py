"""structlog in a worker: each line that a task logs has the job in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.project.recipes.conftest import recipe
from tests.support.watching import ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fixtures.workers import Start

pytest.importorskip("structlog", reason="structlog is not installed")

from tests.project.recipes.failing import say, say_on


@pytest.mark.slow
def test_lines_of_threads_and_coroutines_have_their_job(start: Start, project: Callable[..., dict[str, Any]]) -> None:
    variables = project(recipe("settings.py", "structlog.configure"), shop_logs=recipe("shop/logs.py", "bind_the_job"))
    worker = start("--threads", "2", **variables)
    results = {
        f"{task.name} {number}": task.enqueue(f"{task.name} {number}") for task in (say, say_on) for number in range(6)
    }
    for result in results.values():
        assert ended(result).status == "SUCCESSFUL"
    assert worker.stop() == 0
    lines = [json.loads(line) for line in worker.output.splitlines() if line.startswith("{")]
    assert {line["event"]: (line["job"], line["attempt"], line["task"]) for line in lines} == {
        word: (result.id, 1, result.task.module_path) for word, result in results.items()
    }
