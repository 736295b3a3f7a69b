"""Django's documentation of django.tasks (6.1: reference, topic, signals and settings), point by point.

Nothing of ours is used but the backend in the settings, and ``drain``, which stands for a worker.  Most points are
shown by the other modules of this folder, and of tests/tasks: here is the rest.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any

import pytest
from django.core import checks
from django.utils.module_loading import import_string

from django_pgqueue.testing import drain
from tests.backend import documented
from tests.support.django_tasks_api import PACKAGE, default_task_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db

backends: Any = import_string(f"{PACKAGE}.task_backends")
Task, TaskResult = (import_string(f"{PACKAGE}.base.{name}") for name in ("Task", "TaskResult"))
Status: Any = import_string(f"{PACKAGE}.TaskResultStatus")
BaseTaskBackend: Any = import_string(f"{PACKAGE}.backends.base.BaseTaskBackend")
TaskError: Any = import_string(f"{PACKAGE}.base.TaskError")


def run(result: Any) -> Any:
    """Result after a worker's turn."""
    drain()
    result.refresh()
    return result


class TestContext:
    def test_the_context_has_the_result_and_the_number_of_the_attempt(self) -> None:
        result = documented.describe_yourself.enqueue("word")
        assert run(result).return_value == {
            "attempt": 1,
            "attempts": 1,
            "id": result.id,
            "status": "RUNNING",
            "is_finished": False,
            "args": ["word"],
            "started": True,
            "finished": None,
            "errors": [],
            "workers": 1,
            "class": "TaskContext",
        }

    def test_the_context_cannot_be_modified(self) -> None:
        result = run(documented.change_your_context.enqueue())
        assert result.errors[0].exception_class is FrozenInstanceError


class TestResult:
    @pytest.mark.parametrize(
        "name", ["id", "status", "task", "args", "kwargs", "errors", "started_at", "backend", "worker_ids"]
    )
    def test_the_attributes_of_a_result_cannot_be_modified(self, name: str) -> None:
        result = documented.meaning_of_life.enqueue()
        with pytest.raises(FrozenInstanceError):
            setattr(result, name, None)


class TestBackends:
    def test_backends_are_found_by_alias(self) -> None:
        assert isinstance(backends["default"], BaseTaskBackend)
        assert default_task_backend.alias == backends["default"].alias == "default"
        assert documented.meaning_of_life.get_backend() is backends["default"]

    def test_the_backend_has_all_features(self) -> None:
        for feature in ("defer", "async_task", "get_result", "priority"):
            assert getattr(backends["default"], f"supports_{feature}") is True

    def test_a_result_is_of_the_backend_that_it_was_sent_to(self, settings: Settings) -> None:
        settings.TASKS = {**settings.TASKS, "reserve": settings.TASKS["default"]}
        result = documented.meaning_of_life.using(backend="reserve").enqueue()
        assert (result.backend, result.task.backend) == ("reserve", "reserve")
        assert backends["reserve"].get_result(result.id).backend == "reserve"

    def test_the_checks_of_the_backend_find_nothing(self) -> None:
        assert backends["default"].check() == []
        assert checks.run_checks() == []


class TestSignals:
    @pytest.fixture
    def heard(self) -> Iterator[list[tuple[Any, ...]]]:
        heard: list[tuple[Any, ...]] = []

        def hear(signal: Any, sender: Any, task_result: Any, **_: Any) -> None:
            times = (task_result.started_at is not None, task_result.finished_at is not None)
            heard.append((names[signal], sender, task_result.id, task_result.status, times))

        names = {import_string(f"{PACKAGE}.signals.task_{name}"): name for name in ("enqueued", "started", "finished")}
        for signal in names:
            signal.connect(hear)
        yield heard
        for signal in names:
            signal.disconnect(hear)

    @pytest.mark.parametrize(
        ("task", "args", "end"),
        [
            (documented.meaning_of_life, [], Status.SUCCESSFUL),
            (documented.meaning_of_life_async, [], Status.SUCCESSFUL),
            (documented.raise_value_error, [""], Status.FAILED),
            (documented.return_something_that_is_not_json, [], Status.FAILED),
        ],
        ids=["success", "async", "failure", "not json"],
    )
    def test_each_signal_is_sent_once_by_the_backend_class_with_the_result(
        self, heard: list[tuple[Any, ...]], task: Any, args: list[Any], end: Any
    ) -> None:
        result = run(task.enqueue(*args))
        sender = type(backends["default"])
        assert heard == [
            ("enqueued", sender, result.id, Status.READY, (False, False)),
            ("started", sender, result.id, Status.RUNNING, (True, False)),
            ("finished", sender, result.id, end, (True, True)),
        ]

    def test_a_refused_call_sends_no_signal(self, heard: list[tuple[Any, ...]]) -> None:
        with pytest.raises(TypeError):
            documented.raise_value_error.enqueue(object())
        assert heard == []
