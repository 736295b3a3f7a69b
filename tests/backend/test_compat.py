"""compat gives Django's own objects, under Django's names, whichever package they come from."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest
from django.utils.module_loading import import_string

from django_pgqueue import compat
from tests.support.django_tasks_api import DUMMY, IMMEDIATE, PACKAGE

RENAMED = ["InvalidTask", "InvalidTaskBackend"]


def test_every_name_in_all_exists() -> None:
    assert [name for name in compat.__all__ if not hasattr(compat, name)] == []


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("", ["TaskContext", "TaskResult", "TaskResultStatus", "task_backends", "DEFAULT_TASK_BACKEND_ALIAS"]),
        ("backends.base", ["BaseTaskBackend"]),
        ("base", ["Task", "TaskError"]),
        (
            "exceptions",
            ["InvalidTask", "InvalidTaskBackend", "TaskException", "TaskResultDoesNotExist", "TaskResultMismatch"],
        ),
        ("signals", ["task_enqueued", "task_started", "task_finished"]),
    ],
)
def test_the_objects_are_django_s_own(module: str, names: list[str]) -> None:
    for name in names:
        theirs = import_module(".".join(filter(None, (PACKAGE, module))))
        ends_in_error = name in RENAMED and not hasattr(theirs, name)
        assert getattr(compat, name) is getattr(theirs, f"{name}Error" if ends_in_error else name), name


@pytest.mark.parametrize("name", RENAMED)
@pytest.mark.parametrize("ending", ["", "Error"], ids=["main branch", "0.12"])
def test_an_error_is_found_by_either_name_of_the_backport(name: str, ending: str) -> None:
    exceptions = ModuleType("django_tasks.exceptions")
    theirs = type(f"{name}{ending}", (Exception,), {})
    setattr(exceptions, f"{name}{ending}", theirs)
    assert compat.error_named(name, exceptions) is theirs


@pytest.mark.parametrize("name", RENAMED)
def test_a_missing_error_class_is_reported_by_name(name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name}Error"):
        compat.error_named(name, ModuleType("django_tasks.exceptions"))


def test_the_backends_for_tests_are_django_s_own() -> None:
    assert compat.DummyBackend is import_string(DUMMY)
    assert compat.ImmediateBackend is import_string(IMMEDIATE)
