"""People who come from another queue are told what to write here."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.template import Context, Template

from django_pgqueue.backend.result import PgQueueTaskResult
from django_pgqueue.durable.context import DurableContext
from django_pgqueue.tasks import PgQueueTask, habits, task
from django_pgqueue.tasks.after import Batch
from django_pgqueue.tasks.context import PgQueueContext
from tests.support import tasks

echo: Any = tasks.echo
declare: Any = task


@pytest.mark.parametrize("name", habits.ATTRIBUTES)
def test_an_attribute_of_another_queue_names_the_right_call(name: str) -> None:
    assert not hasattr(echo, name)
    with pytest.raises(AttributeError, match=rf"^echo is a task of django\.tasks, which has no '{name}'\. Write "):
        getattr(echo, name)


@pytest.mark.parametrize("name", habits.CONTEXT_ATTRIBUTES)
@pytest.mark.parametrize("kind", [PgQueueContext, DurableContext])
def test_an_attribute_of_another_queue_s_context_names_the_way_here(kind: type[PgQueueContext], name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^The context of a task has no '{name}'\. Write "):
        getattr(kind.__new__(kind), name)


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
    empty = [kind.__new__(kind) for kind in (PgQueueTaskResult, PgQueueContext)]
    for one in (echo, Batch(database="default"), *empty):
        with pytest.raises(AttributeError, match=rf"^'{type(one).__name__}' object has no attribute 'colour'$"):
            _ = one.colour


@pytest.mark.parametrize("name", habits.OPTIONS)
def test_an_option_of_another_queue_names_the_one_here(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^@task has no option '{name}'\. Instead: "):
        declare(**{name: 1})(tasks.plain_function)

    with pytest.raises(TypeError, match=rf"^using\(\) has no option '{name}'\. Instead: "):
        echo.using(**{name: 1})


@pytest.mark.parametrize("name", habits.OF_ONE_CALL)
def test_an_option_among_the_arguments_names_using(name: str) -> None:
    words = rf"unexpected keyword argument '{name}'\. Write add_group\.using\(\w+=.*\)\.enqueue\(…\)\.$"
    add_group: Any = tasks.add_group
    with pytest.raises(TypeError, match=words):
        add_group.enqueue("x", **{name: 1})


def test_an_option_without_its_name_is_told_to_have_one() -> None:
    with pytest.raises(TypeError, match=r"^@task takes its options by name, such as .*, and not \'mail\'\.$"):
        declare("mail")


@pytest.mark.django_db
def test_a_call_in_async_code_names_its_async_variant() -> None:
    async def enqueue() -> None:
        echo.enqueue(1)

    with pytest.raises(
        SynchronousOnlyOperation, match=r"Or await the call's async variant, where it has one: aenqueue, "
    ):
        async_to_sync(enqueue)()


def test_an_unknown_option_is_answered_with_those_that_exist() -> None:
    options: dict[str, Any] = {"max_attemps": 3}
    with pytest.raises(TypeError, match=r"^@task has no option 'max_attemps'\. The options are .*max_attempts"):
        declare(**options)(tasks.plain_function)
    with pytest.raises(TypeError, match=r"^using\(\) has no option 'max_attemps'\. The options are .*max_attempts"):
        echo.using(**options)


def test_no_habit_hides_a_name_that_there_is() -> None:
    assert [name for name in habits.ATTRIBUTES if name in dir(PgQueueTask)] == []
    assert [name for name in habits.CONTEXT_ATTRIBUTES if name in dir(DurableContext)] == []
    assert [name for name in habits.RESULT_ATTRIBUTES if name in dir(PgQueueTaskResult)] == []
    assert [name for name in habits.BATCH_ATTRIBUTES if name in dir(Batch)] == []
    assert [name for name in habits.OPTIONS if name in PgQueueTask.__dataclass_fields__] == []
