"""People who come from another queue are told what to write here."""

from __future__ import annotations

from typing import Any

import pytest
from django.template import Context, Template

from django_pgqueue.backend.result import PgQueueTaskResult
from django_pgqueue.tasks import PgQueueTask, habits, task
from django_pgqueue.tasks.after import Batch
from tests.support import tasks

echo: Any = tasks.echo
declare: Any = task


@pytest.mark.parametrize("name", habits.ATTRIBUTES)
def test_an_attribute_of_another_queue_names_the_right_call(name: str) -> None:
    assert not hasattr(echo, name)
    with pytest.raises(AttributeError, match=rf"^echo is a task of django\.tasks, which has no '{name}'\. Write "):
        getattr(echo, name)


@pytest.mark.django_db
@pytest.mark.parametrize("name", habits.RESULT_ATTRIBUTES)
def test_an_attribute_of_another_queue_s_result_names_the_way_here(name: str) -> None:
    result: Any = echo.enqueue(1)
    for one in (result, echo.get_result(result.id)):
        assert not hasattr(one, name)
        with pytest.raises(AttributeError, match=rf"^A result of django\.tasks has no '{name}'\. (Write|Leave it out)"):
            getattr(one, name)


@pytest.mark.parametrize("name", habits.BATCH_ATTRIBUTES)
def test_an_attribute_of_another_queue_s_group_names_the_way_here(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^A batch has no '{name}'\. Write "):
        getattr(Batch(database="default"), name)


def test_delay_is_told_to_be_enqueue() -> None:
    with pytest.raises(AttributeError, match=r"Write echo\.enqueue\(…\)\.$"):
        echo.delay(1)


def test_a_call_of_a_task_names_enqueue_and_call() -> None:
    words = r"^echo is a task of django\.tasks, which is not called\. Write echo\.enqueue\(…\), .* or echo\.call\(…\), "
    for call in (echo, echo.using(priority=1)):
        with pytest.raises(TypeError, match=words):
            call(1)
    assert Template("{{ task.name }}").render(Context({"task": echo})) == "echo", "a template does not call it"


def test_any_other_attribute_has_python_s_own_error() -> None:
    one: Any
    for one in (echo, Batch(database="default"), PgQueueTaskResult.__new__(PgQueueTaskResult)):
        with pytest.raises(AttributeError, match=rf"^'{type(one).__name__}' object has no attribute 'colour'$"):
            _ = one.colour


@pytest.mark.parametrize("name", habits.OPTIONS)
def test_an_option_of_another_queue_names_the_one_here(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^@task has no option '{name}'\. Instead: "):
        declare(**{name: 1})(tasks.plain_function)


def test_an_unknown_option_is_answered_with_those_that_exist() -> None:
    options: dict[str, Any] = {"max_attemps": 3}
    with pytest.raises(TypeError, match=r"^@task has no option 'max_attemps'\. The options are .*max_attempts"):
        declare(**options)(tasks.plain_function)


def test_no_habit_hides_a_name_that_there_is() -> None:
    assert [name for name in habits.ATTRIBUTES if name in dir(PgQueueTask)] == []
    assert [name for name in habits.RESULT_ATTRIBUTES if name in dir(PgQueueTaskResult)] == []
    assert [name for name in habits.BATCH_ATTRIBUTES if name in dir(Batch)] == []
    assert [name for name in habits.OPTIONS if name in PgQueueTask.__dataclass_fields__] == []
