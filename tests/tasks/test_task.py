"""Tasks: what Django's documentation says of ``Task``, and what ours adds."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import pickle
from types import FunctionType
from typing import TYPE_CHECKING, Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone
from django.utils.module_loading import import_string

from django_pgqueue.compat import DummyBackend, ImmediateBackend, InvalidTask, InvalidTaskBackend, Task
from django_pgqueue.tasks import PgQueueTask, every, task
from django_pgqueue.values.redaction import quote
from tests.support import tasks
from tests.support.django_tasks_api import DUMMY, IMMEDIATE, django_task
from tests.support.pages import FOLDER, blocks

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

OURS = "django_pgqueue.backend.PgQueueBackend"


class TestDecorator:
    def test_the_bare_and_the_called_decorator_make_tasks(self) -> None:
        assert isinstance(tasks.do_nothing, Task)
        assert isinstance(tasks.do_nothing_async, Task)
        assert type(tasks.do_nothing) is type(tasks.do_nothing_async) is PgQueueTask

    def test_a_task_has_the_documented_defaults(self) -> None:
        declared = tasks.do_nothing
        assert (declared.priority, declared.queue_name, declared.backend) == (0, "default", "default")
        assert (declared.run_after, declared.takes_context) == (None, False)
        assert (declared.max_attempts, declared.backoff, declared.run_in) == (None, None, None)

    def test_every_option_of_django_and_ours_is_taken(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": OURS}, "other": {"BACKEND": OURS, "QUEUES": ["mail"]}}
        made = task(
            priority=-3,
            queue_name="mail",
            backend="other",
            takes_context=True,
            max_attempts=4,
            backoff=tasks.at_once,
        )(tasks.describe.func)
        assert (made.priority, made.queue_name, made.backend, made.takes_context) == (-3, "mail", "other", True)
        assert (made.max_attempts, made.backoff) == (4, tasks.at_once)

    def test_django_s_own_decorator_makes_the_same_task(self) -> None:
        assert django_task(priority=7)(tasks.plain_function) == task(priority=7)(tasks.plain_function)

    @pytest.mark.skipif((6, 0) <= django.VERSION < (6, 1), reason="6.0's decorator takes no options of backends")
    def test_django_s_own_decorator_takes_our_options(self) -> None:
        for name, instead in (
            ("retries", "Instead: max_attempts="),
            ("colour", "The options are after, after_policy,"),
        ):
            with pytest.raises(TypeError, match=f"@task has no option '{name}'. {instead}"):
                django_task(**{name: 4})(tasks.plain_function)
        made = django_task(max_attempts=4, backoff=tasks.at_once)(tasks.plain_function)
        assert made == task(max_attempts=4, backoff=tasks.at_once)(tasks.plain_function)

    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"run_after": 5}, TypeError, "run_after cannot be defined statically with the @task decorator"),
            ({"max_atempts": 3}, TypeError, "max_atempts"),
            ({"takes_context": True}, InvalidTask, "does not have a first argument of 'context'"),
            ({"backend": "unknown"}, InvalidTaskBackend, "unknown"),
            ({"max_lost": 0}, InvalidTask, "max_lost must be a whole number"),
            ({"run_in": 30}, InvalidTask, "run_in must be a timedelta"),
            ({"backoff": lambda _attempt: 1}, InvalidTask, "backoff must be a callable .*exception, task_result"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
    )
    def test_an_option_that_cannot_be_declared_is_named(
        self, options: dict[str, Any], error: type[Exception], words: str
    ) -> None:
        with pytest.raises(error, match=words):
            task(**options)(tasks.plain_function)

    def test_a_backoff_may_be_an_object_without_a_hash(self) -> None:
        @dataclasses.dataclass
        class Waits:
            seconds: float

            def __call__(self, *_: object) -> float:
                return self.seconds

        made = task(max_attempts=3, backoff=Waits(5))(tasks.plain_function)
        assert made.using(priority=1).backoff == Waits(5)

    @pytest.mark.parametrize("function", [any, tasks.do_nothing, str.upper, "text", None])
    def test_only_functions_of_modules_are_tasks(self, function: Any) -> None:
        with pytest.raises(InvalidTask) as refused:
            task()(function)
        assert str(refused.value).startswith(f"{quote(function)} cannot be a task, which a worker finds by")
        with pytest.raises(InvalidTask, match=r"<function TestDecorator.*<la.* cannot be a task"):
            task()(lambda: None)

    def test_a_task_of_the_main_program_has_to_move(self) -> None:
        function = FunctionType(tasks.plain_function.__code__, {"__name__": "__main__"})
        with pytest.raises(InvalidTask, match=r"'__main__\.plain_function' cannot .* Each process has another"):
            task(function).enqueue()


class TestTask:
    def test_a_task_cannot_be_changed(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            tasks.do_nothing.priority = 1  # type: ignore[misc]

    def test_name_and_path_are_those_of_the_function(self) -> None:
        assert tasks.do_nothing.name == "do_nothing"
        assert tasks.do_nothing.module_path == "tests.support.tasks.do_nothing"
        assert import_string(tasks.do_nothing.module_path) is tasks.do_nothing

    def test_equal_tasks_have_equal_hashes(self) -> None:
        changed = tasks.fail_thrice.using(priority=5)
        assert changed != tasks.fail_thrice
        assert {tasks.fail_thrice, changed, tasks.fail_thrice.using()} == {
            tasks.fail_thrice,
            changed,
        }


class TestUsing:
    def test_using_leaves_the_task_unchanged(self) -> None:
        now = timezone.now()
        changed = tasks.do_nothing.using(priority=10, queue_name="mail", run_after=now, max_attempts=2)
        assert (changed.priority, changed.queue_name, changed.run_after, changed.max_attempts) == (10, "mail", now, 2)
        assert (tasks.do_nothing.priority, tasks.do_nothing.queue_name) == (0, "default")
        assert (tasks.do_nothing.run_after, tasks.do_nothing.max_attempts) == (None, None)

    def test_using_without_arguments_makes_an_equal_task(self) -> None:
        assert tasks.send.using() == tasks.send
        assert tasks.send.using() is not tasks.send

    def test_calls_can_be_chained(self) -> None:
        now = timezone.now()
        changed = tasks.do_nothing.using(run_after=now).using(priority=3).using(max_attempts=9)
        assert (changed.run_after, changed.priority, changed.max_attempts) == (now, 3, 9)

    def test_none_keeps_the_value(self) -> None:
        changed = tasks.send.using(run_after=dt.timedelta(1), max_attempts=3)
        again = changed.using(priority=None, queue_name=None, run_after=None, backend=None, max_attempts=None)
        assert again == changed

    def test_a_time_and_a_delay_replace_each_other(self) -> None:
        now, hour = timezone.now(), dt.timedelta(hours=1)
        late = tasks.do_nothing.using(run_after=now).using(run_after=hour)
        assert (late.run_after, late.run_in) == (None, hour)
        on_time = late.using(run_after=now)
        assert (on_time.run_after, on_time.run_in) == (now, None)

    @pytest.mark.parametrize("wrong", [{"func": print}, {"takes_context": True}, {"backoff": None}, {"o": None}])
    def test_using_cannot_change_options_fixed_by_the_declaration(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(TypeError, match=next(iter(wrong))):
            tasks.do_nothing.using(**wrong)

    def test_a_backend_that_is_not_in_tasks_is_an_error(self) -> None:
        with pytest.raises(InvalidTaskBackend, match="TASKS has no backend 'unknown'"):
            tasks.do_nothing.using(backend="unknown")

    def test_using_may_choose_another_of_our_backends(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": OURS}, "other": {"BACKEND": OURS, "QUEUES": ["slow"]}}
        assert tasks.do_nothing.using(backend="other", queue_name="slow").get_backend().alias == "other"
        with pytest.raises(InvalidTask, match="Queue 'default' is not valid for backend"):
            tasks.do_nothing.using(backend="other")


class TestValidation:
    @pytest.mark.parametrize("priority", [-100, -1, 0, 1, 100, 5.0, True])
    def test_whole_numbers_from_minus_100_to_100_are_priorities(self, priority: Any) -> None:
        assert tasks.do_nothing.using(priority=priority).priority == priority

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            *(
                ({"priority": wrong}, "priority must be a whole number between -100 and 100, not ")
                for wrong in (-101, 101, 3.1, "5", "high", float("nan"), float("inf"), 10**400, [], object(), 1j)
            ),
            *(
                ({"run_after": wrong}, "run_after must be a datetime")
                for wrong in ("tomorrow", 1_700_000_000, dt.date(2030, 1, 1), dt.time(12))
            ),
            ({"run_after": dt.datetime(2030, 1, 1)}, "run_after must be an aware datetime"),  # noqa: DTZ001
            *(
                ({"queue_name": wrong}, "cannot be the name of a queue")
                for wrong in ("", "a\x00b", "\ud800", "q" * 256, 5, b"mail", ["mail"])
            ),
            *(
                ({"max_lost": wrong}, "max_lost must be a whole number from 1 to 32,767, or None for 20")
                for wrong in (0, -1, 2.0, "3", True, 2**15, [3])
            ),
        ],
        ids=lambda value: ascii(value)[:40] if isinstance(value, dict) else "",
    )
    def test_invalid_values_are_refused(self, changes: dict[str, Any], words: str) -> None:
        with pytest.raises(InvalidTask, match=words):
            tasks.do_nothing.using(**changes)

    def test_a_naive_time_is_valid_without_use_tz(self, settings: Settings) -> None:
        settings.USE_TZ = False
        at = dt.datetime(2030, 1, 1)  # noqa: DTZ001
        assert tasks.do_nothing.using(run_after=at).run_after == at
        with pytest.raises(InvalidTask, match="run_after must be a datetime"):
            tasks.do_nothing.using(run_after="tomorrow")  # type: ignore[arg-type]

    def test_the_queue_must_be_one_of_queues(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": ["default", "mail"]}}
        assert tasks.do_nothing.using(queue_name="mail").queue_name == "mail"
        with pytest.raises(InvalidTask, match="Queue 'mial' is not valid for backend"):
            tasks.do_nothing.using(queue_name="mial")

    def test_no_queues_in_the_settings_are_the_default_queue_alone(self, settings: Settings) -> None:
        settings.TASKS = {"default": {"BACKEND": OURS}}
        with pytest.raises(InvalidTask, match="Queue 'mail' is not valid for backend"):
            tasks.do_nothing.using(queue_name="mail")

    @pytest.mark.parametrize("name", ["mail", "a", "é 🍵 with spaces", "q" * 255, "a,b", "'; drop table", "%s"])
    def test_an_empty_list_of_queues_allows_every_name(self, name: str) -> None:
        assert tasks.do_nothing.using(queue_name=name).queue_name == name


class TestCopies:
    @pytest.mark.parametrize(
        "original",
        [
            tasks.do_nothing,
            tasks.send,
            tasks.describe,
            tasks.fail_thrice,  # its backoff is a lambda
            tasks.do_nothing.using(priority=3, queue_name="x", run_after=dt.timedelta(minutes=5), max_attempts=2),
            tasks.do_nothing.using(run_after=dt.datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)),
            tasks.do_nothing.using(unique_key="k", on_conflict="debounce", unique_until="started"),
            tasks.with_everything,
        ],
        ids=lambda task: task.name,
    )
    def test_a_task_survives_pickling_and_copying(self, original: Task[..., Any]) -> None:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            restored = pickle.loads(pickle.dumps(original, protocol))  # noqa: S301
            assert restored == original
            assert dataclasses.asdict(restored) == dataclasses.asdict(original)  # also what is not compared
        assert copy.copy(original) == copy.deepcopy(original) == original

    def test_a_schedule_is_found_again_with_its_task(self, monkeypatch: pytest.MonkeyPatch) -> None:
        scheduled = task(schedule=every(dt.timedelta(hours=1)))(tasks.plain_function)
        monkeypatch.setattr(tasks, "plain_function", scheduled)
        assert pickle.loads(pickle.dumps(scheduled.using(priority=3))) == scheduled.using(priority=3)  # noqa: S301

    def test_unpickling_a_removed_task_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pickled = pickle.dumps(tasks.send)
        monkeypatch.setattr(tasks, "send", any)
        with pytest.raises(ValueError, match=r"Expected '.*\.send' to point to a Task instance"):
            pickle.loads(pickled)  # noqa: S301


@pytest.mark.usefixtures("others")
class TestOnOtherBackends:
    """Projects test on Django's Dummy and Immediate backends what they deploy on ours."""

    @pytest.fixture(params=["django", "stand-in"])
    def others(self, request: pytest.FixtureRequest, settings: Settings) -> None:
        dummy, immediate = (
            (DUMMY, IMMEDIATE)
            if request.param == "django"
            else ("django_pgqueue.stand_ins.DummyBackend", "django_pgqueue.stand_ins.ImmediateBackend")
        )
        settings.TASKS = {
            "default": {"BACKEND": OURS, "QUEUES": []},
            "dummy": {"BACKEND": dummy, "QUEUES": []},
            "immediate": {"BACKEND": immediate, "QUEUES": []},
        }

    def test_our_decorator_works_on_django_s_dummy_backend(self) -> None:
        made = task(backend="dummy", max_attempts=3, backoff=tasks.at_once)(tasks.do_nothing.func)
        backend = made.get_backend()
        assert isinstance(backend, DummyBackend)
        result = made.using(run_after=dt.timedelta(hours=1), max_attempts=5).enqueue(1, a=2)
        assert backend.results == [result]
        assert isinstance(result.task, PgQueueTask)
        assert (result.task.max_attempts, result.args, result.kwargs) == (5, [1], {"a": 2})
        assert made.get_result(result.id) == result

    def test_our_decorator_works_on_django_s_immediate_backend(self) -> None:
        made = task(backend="immediate", max_attempts=3, backoff=tasks.at_once)(tasks.echo.func)
        assert isinstance(made.get_backend(), ImmediateBackend)
        assert made.using(max_attempts=5).enqueue(1).return_value == {"args": [1], "kwargs": {}}

    def test_a_durable_task_says_that_an_immediate_backend_has_no_steps(self) -> None:
        made = task(backend="immediate", durable=True)(tasks.describe.func)
        assert "is durable: its first argument is the context with its steps" in made.enqueue(1).errors[0].traceback
        with pytest.raises(InvalidTask, match="the InlineBackend"):
            async_to_sync(made.acall)()

    def test_our_task_may_be_sent_elsewhere(self) -> None:
        assert tasks.echo.using(backend="immediate").enqueue(5).return_value["args"] == [5]
        assert async_to_sync(tasks.echo.using(backend="immediate").aenqueue)(5).return_value["args"] == [5]

    def test_other_backends_refuse_a_delay_like_a_time(self) -> None:
        for run_after in (timezone.now(), dt.timedelta(hours=1)):
            with pytest.raises(InvalidTask, match="Backend does not support run_after"):
                tasks.echo.using(backend="immediate", run_after=run_after)

    def test_other_backends_refuse_invalid_values_too(self) -> None:
        with pytest.raises(InvalidTask, match="max_attempts"):
            task(backend="dummy", max_attempts=0)(tasks.plain_function)


@pytest.mark.skipif((6, 0) <= django.VERSION < (6, 1), reason="6.0's decorator takes no options of backends")
@pytest.mark.parametrize("name", ["DummyBackend", "ImmediateBackend"])
def test_the_stand_in_backends_take_our_options_from_django_s_decorator(settings: Settings, name: str) -> None:
    settings.TASKS = {"default": {"BACKEND": f"django_pgqueue.stand_ins.{name}"}}
    made = django_task(max_attempts=3, backoff=tasks.at_once)(tasks.do_nothing.func)
    assert made.enqueue().task == made


STAND_INS = [
    block.text
    for page in ("guide/testing", "reference/api")
    for block in blocks(FOLDER / f"{page}.md", "python")
    if "stand_ins." in block.text and "TASKS = " in block.text
]


@pytest.mark.parametrize("text", STAND_INS)
def test_the_stand_ins_of_the_pages_take_tasks_of_any_queue(settings: Settings, text: str) -> None:
    written: dict[str, Any] = {}
    exec(text, written)  # noqa: S102 -- our own pages
    settings.TASKS = written["TASKS"]
    assert task(queue_name="mail")(tasks.do_nothing.func).queue_name == "mail"


def test_a_backend_with_a_class_of_its_own_keeps_it(settings: Settings) -> None:
    settings.TASKS = {"default": {"BACKEND": "tests.tasks.test_task.ForeignBackend"}}
    made: object = task(flavour="mint")(tasks.plain_function)
    assert isinstance(made, ForeignTask)
    assert (made.flavour, made.priority) == ("mint", 0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTask(Task):  # type: ignore[type-arg]
    flavour: str = "plain"


class ForeignBackend(DummyBackend):
    task_class = ForeignTask
