"""Django's documentation of django.tasks (6.1: reference, topic, signals and settings), point by point.

Nothing of ours is used but the backend in the settings, and ``drain``, which stands for a worker.  Where a point needs
more than a few lines to be shown, the other modules of this folder have the rest of it.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import FrozenInstanceError
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from django_pgqueue.testing import clock, drain
from tests.backend import documented
from tests.support.django_tasks_api import PACKAGE, default_task_backend, django_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db

backends: Any = import_string(f"{PACKAGE}.task_backends")
Task, TaskResult = (import_string(f"{PACKAGE}.base.{name}") for name in ("Task", "TaskResult"))
Status: Any = import_string(f"{PACKAGE}.TaskResultStatus")
BaseTaskBackend: Any = import_string(f"{PACKAGE}.backends.base.BaseTaskBackend")
TaskError: Any = import_string(f"{PACKAGE}.base.TaskError")


def error(name: str) -> Any:
    """By the name that Django gives it; releases of the backport up to 0.12 have another for two of them."""
    exceptions = import_module(f"{PACKAGE}.exceptions")
    return getattr(exceptions, name, None) or getattr(exceptions, f"{name}Error")


def run(result: Any) -> Any:
    """What a worker makes of it."""
    drain()
    result.refresh()
    return result


def enqueued_by(how: str, task: Any, *args: Any, **kwargs: Any) -> Any:
    if how == "enqueue":
        return task.enqueue(*args, **kwargs)
    return async_to_sync(task.aenqueue)(*args, **kwargs)


both_ways = pytest.mark.parametrize("how", ["enqueue", "aenqueue"])
every_way_to_a_result = pytest.mark.parametrize(
    "get",
    [
        lambda task, result_id: task.get_result(result_id),
        lambda task, result_id: async_to_sync(task.aget_result)(result_id),
        lambda _, result_id: default_task_backend.get_result(result_id),
        lambda _, result_id: async_to_sync(default_task_backend.aget_result)(result_id),
    ],
    ids=["task", "task async", "backend", "backend async"],
)


class TestTheDecorator:
    def test_it_returns_a_task(self) -> None:
        for task in (documented.meaning_of_life, documented.meaning_of_life_async, documented.email_users):
            assert isinstance(task, Task)

    def test_its_arguments_are_the_attributes_of_the_task(self) -> None:
        task = documented.email_users
        assert (task.priority, task.queue_name, task.backend, task.takes_context) == (2, "emails", "default", False)
        assert documented.describe_yourself.takes_context is True

    def test_the_defaults_are_the_documented_ones(self) -> None:
        task = documented.meaning_of_life
        assert (task.priority, task.queue_name, task.backend, task.run_after) == (0, "default", "default", None)

    @pytest.mark.parametrize("wrong", [{"priority": 101}, {"priority": -101}, {"priority": 1.5}])
    def test_a_task_that_is_not_valid_raises_invalid_task(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(error("InvalidTask")):
            django_task(**wrong)(documented.meaning_of_life.func)

    def test_a_function_inside_of_another_is_not_valid(self) -> None:
        def inner() -> None: ...

        with pytest.raises(error("InvalidTask")):
            django_task(inner)
        with pytest.raises(error("InvalidTask")):
            django_task(lambda: None)

    def test_who_takes_the_context_calls_it_so(self) -> None:
        with pytest.raises(error("InvalidTask")):
            django_task(takes_context=True)(documented.give_back.func)

    def test_run_after_is_no_argument_of_it(self) -> None:
        with pytest.raises(TypeError):
            django_task(run_after=timezone.now())(documented.meaning_of_life.func)


class TestTask:
    @pytest.mark.parametrize("name", ["priority", "queue_name", "backend", "run_after", "func", "takes_context"])
    def test_its_attributes_can_not_be_modified(self, name: str) -> None:
        with pytest.raises(FrozenInstanceError):
            setattr(documented.meaning_of_life, name, 1)

    def test_its_name_is_that_of_the_function(self) -> None:
        assert documented.email_users.name == "email_users"
        assert documented.email_users.module_path == "tests.backend.documented.email_users"

    def test_using_makes_a_new_one_and_leaves_the_old_one(self, settings: Settings) -> None:
        settings.TASKS = {**settings.TASKS, "reserve": settings.TASKS["default"]}
        at = timezone.now() + dt.timedelta(hours=1)
        changed = documented.email_users.using(priority=10, queue_name="other", run_after=at, backend="reserve")
        assert isinstance(changed, Task)
        assert (changed.priority, changed.queue_name, changed.run_after, changed.backend) == (
            10,
            "other",
            at,
            "reserve",
        )
        assert changed.func is documented.email_users.func
        assert (documented.email_users.priority, documented.email_users.run_after) == (2, None)

    @pytest.mark.parametrize("wrong", [{"priority": 101}, {"priority": -101}])
    def test_using_validates(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(error("InvalidTask")):
            documented.email_users.using(**wrong)

    def test_priorities_go_from_minus_100_to_100_and_larger_ones_run_sooner(self) -> None:
        for priority in (0, -100, 100, 50):
            documented.give_back.using(priority=priority).enqueue(priority)
        assert [result.return_value for result in drain()] == [100, 50, 0, -100]

    @pytest.mark.parametrize(
        "after",
        [lambda _: dt.timedelta(minutes=5), lambda now: now + dt.timedelta(minutes=5)],
        ids=["timedelta", "aware datetime"],
    )
    def test_run_after_is_the_earliest_time(self, after: Callable[[dt.datetime], Any]) -> None:
        with clock() as now:
            result = documented.meaning_of_life.using(run_after=after(now.at)).enqueue()
            assert run(result).status == Status.READY
            now.advance(dt.timedelta(minutes=5, milliseconds=1))
            assert run(result).status == Status.SUCCESSFUL

    @both_ways
    def test_arguments_are_passed_as_they_are(self, how: str) -> None:
        words = {"emails": ["user@example.com"], "subject": "You have a message", "message": "Hello there!"}
        result = enqueued_by(how, documented.email_users, **words)
        assert isinstance(result, TaskResult)
        assert (result.args, result.kwargs) == ([], words)
        assert run(result).return_value == list(words.values())

    @both_ways
    def test_one_that_is_not_valid_any_more_is_refused_when_it_is_enqueued(self, how: str, settings: Settings) -> None:
        task = documented.email_users
        settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default"]}}
        with pytest.raises(error("InvalidTask")):
            enqueued_by(how, task, [], "", "")

    def test_a_coroutine_is_a_task_too(self) -> None:
        assert run(documented.meaning_of_life_async.enqueue()).return_value == 42


class TestResultsByTheirId:
    @every_way_to_a_result
    def test_it_is_the_result(self, get: Any) -> None:
        task = documented.meaning_of_life
        result = task.enqueue()
        assert get(task, result.id) == result
        drain()
        assert get(task, result.id).return_value == 42

    @every_way_to_a_result
    @pytest.mark.parametrize("result_id", ["123456789", "no such id", "", "7b1f3c0e-5a2e-4a3f-9f0e-000000000000", "-1"])
    def test_one_that_does_not_exist_says_so(self, get: Any, result_id: str) -> None:
        with pytest.raises(error("TaskResultDoesNotExist")):
            get(documented.meaning_of_life, result_id)

    def test_one_of_another_task_is_a_mismatch_but_not_for_the_backend(self) -> None:
        result = documented.meaning_of_life.enqueue()
        with pytest.raises(error("TaskResultMismatch")):
            documented.email_users.get_result(result.id)
        with pytest.raises(error("TaskResultMismatch")):
            async_to_sync(documented.email_users.aget_result)(result.id)
        assert default_task_backend.get_result(result.id).task == documented.meaning_of_life


class TestContext:
    def test_it_has_the_result_that_is_run_and_the_number_of_the_attempt(self) -> None:
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

    def test_it_can_not_be_modified(self) -> None:
        result = run(documented.change_your_context.enqueue())
        assert result.errors[0].exception_class is FrozenInstanceError


class TestResult:
    def test_a_new_one(self) -> None:
        before = timezone.now()
        result = documented.meaning_of_life.enqueue()
        assert result.status == Status.READY
        assert result.task == documented.meaning_of_life
        assert type(result.id) is str
        assert 0 < len(result.id) < 64
        assert abs(result.enqueued_at - before) < dt.timedelta(minutes=1)
        assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
        assert (result.args, result.kwargs, result.errors, result.worker_ids) == ([], {}, [], [])
        assert (result.backend, result.attempts, result.is_finished) == ("default", 0, False)
        with pytest.raises(ValueError, match="Task has not finished yet"):
            _ = result.return_value

    def test_a_successful_one(self) -> None:
        result = run(documented.meaning_of_life.enqueue())
        assert (result.status, result.is_finished, result.attempts) == (Status.SUCCESSFUL, True, 1)
        assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
        assert (result.return_value, result.errors, len(result.worker_ids)) == (42, [], 1)

    def test_a_failed_one(self) -> None:
        result = run(documented.raise_value_error.enqueue("as it was told"))
        assert (result.status, result.is_finished, result.attempts) == (Status.FAILED, True, 1)
        assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
        with pytest.raises(ValueError, match="Task failed"):
            _ = result.return_value
        [error] = result.errors
        assert isinstance(error, TaskError)
        assert error.exception_class is ValueError
        assert error.exception_class_path == "builtins.ValueError"
        assert error.traceback.startswith("Traceback (most recent call last)")
        assert error.traceback.rstrip().endswith("ValueError: as it was told")

    @pytest.mark.parametrize(
        "name", ["id", "status", "task", "args", "kwargs", "errors", "started_at", "backend", "worker_ids"]
    )
    def test_its_attributes_can_not_be_modified(self, name: str) -> None:
        result = documented.meaning_of_life.enqueue()
        with pytest.raises(FrozenInstanceError):
            setattr(result, name, None)

    def test_it_is_as_old_as_it_is_until_it_is_refreshed(self) -> None:
        result = documented.meaning_of_life.enqueue()
        again = documented.meaning_of_life.get_result(result.id)
        drain()
        assert (result.status, again.status) == (Status.READY, Status.READY)
        result.refresh()
        async_to_sync(again.arefresh)()
        assert (result.return_value, again.return_value) == (42, 42)
        assert result == again

    def test_a_task_may_return_nothing(self) -> None:
        assert run(documented.give_back.enqueue()).return_value is None


class TestJson:
    def test_what_is_not_json_is_a_type_error_in_the_words_of_json(self) -> None:
        for value in (dt.datetime.now(tz=dt.UTC), object(), {1, 2}, 1j):
            with pytest.raises(TypeError, match=f"{type(value).__name__}.*is not JSON serializable|Unsupported type"):
                documented.give_back.enqueue(value)

    def test_arguments_make_the_round_trip_before_the_task_sees_them(self) -> None:
        result = documented.double_dictionary.enqueue((1, 2, 3))
        assert result.args == [[1, 2, 3]]
        assert run(result).status == Status.FAILED
        assert result.errors[0].exception_class is TypeError
        assert "unhashable type: 'list'" in result.errors[0].traceback

    def test_return_values_make_it_too(self) -> None:
        assert run(documented.give_back.enqueue([1, 2], word={"a": None})).return_value == [
            [1, 2],
            {"word": {"a": None}},
        ]

    def test_a_return_value_that_is_not_json_is_an_error_of_running_it(self) -> None:
        result = run(documented.return_something_that_is_not_json.enqueue())
        assert result.status == Status.FAILED
        assert issubclass(result.errors[0].exception_class, TypeError)


class TestTransactions:
    @pytest.mark.django_db(transaction=True)
    def test_on_commit_with_a_partial_as_the_topic_shows_it(self) -> None:
        with transaction.atomic():
            transaction.on_commit(partial(documented.give_back.enqueue, value=1))
            assert drain() == []
        assert [result.return_value for result in drain()] == [1]


class TestBackends:
    def test_they_are_found_by_alias_and_the_default_one_by_name(self) -> None:
        assert isinstance(backends["default"], BaseTaskBackend)
        assert default_task_backend.alias == backends["default"].alias == "default"
        assert documented.meaning_of_life.get_backend() is backends["default"]

    def test_another_alias_is_an_error(self) -> None:
        with pytest.raises(error("InvalidTaskBackend")):
            _ = backends["no such alias"]
        assert issubclass(error("InvalidTaskBackend"), ImproperlyConfigured)

    def test_it_has_all_features(self) -> None:
        for feature in ("defer", "async_task", "get_result", "priority"):
            assert getattr(backends["default"], f"supports_{feature}") is True

    def test_a_result_is_of_the_backend_that_it_was_sent_to(self, settings: Settings) -> None:
        settings.TASKS = {**settings.TASKS, "reserve": settings.TASKS["default"]}
        result = documented.meaning_of_life.using(backend="reserve").enqueue()
        assert (result.backend, result.task.backend) == ("reserve", "reserve")
        assert backends["reserve"].get_result(result.id).backend == "reserve"

    def test_queues_are_those_of_the_settings_or_all_if_there_are_none(self, settings: Settings) -> None:
        ours = settings.TASKS["default"]
        settings.TASKS = {"default": {**ours, "QUEUES": ["default", "special"]}}
        assert documented.meaning_of_life.using(queue_name="special").queue_name == "special"
        with pytest.raises(error("InvalidTask")):
            documented.meaning_of_life.using(queue_name="unknown")
        settings.TASKS = {"default": {**ours, "QUEUES": []}}
        assert documented.meaning_of_life.using(queue_name="unknown").queue_name == "unknown"
        settings.TASKS = {"default": {key: value for key, value in ours.items() if key != "QUEUES"}}
        with pytest.raises(error("InvalidTask")):
            documented.meaning_of_life.using(queue_name="unknown")

    def test_its_checks_find_nothing_wrong(self) -> None:
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
    def test_each_is_sent_once_by_the_class_of_the_backend_with_the_result(
        self, heard: list[tuple[Any, ...]], task: Any, args: list[Any], end: Any
    ) -> None:
        result = run(task.enqueue(*args))
        sender = type(backends["default"])
        assert heard == [
            ("enqueued", sender, result.id, Status.READY, (False, False)),
            ("started", sender, result.id, Status.RUNNING, (True, False)),
            ("finished", sender, result.id, end, (True, True)),
        ]


class TestNames:
    def test_the_statuses(self) -> None:
        assert {status.name for status in Status} == {"READY", "RUNNING", "FAILED", "SUCCESSFUL"}

    def test_the_errors(self) -> None:
        base = error("TaskException")
        for name in ("InvalidTask", "TaskResultDoesNotExist", "TaskResultMismatch"):
            assert issubclass(error(name), base)
