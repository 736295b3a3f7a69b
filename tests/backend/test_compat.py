"""compat gives Django's own objects, under Django's names, whichever package they come from."""

from __future__ import annotations

import django
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_pgqueue import compat
from tests.support.django_tasks_api import DUMMY, IMMEDIATE, PACKAGE

BACKPORTS_NAMES = {"InvalidTask": "InvalidTaskError", "InvalidTaskBackend": "InvalidTaskBackendError"}


def test_it_exports_what_it_says_and_nothing_is_missing() -> None:
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
        theirs = BACKPORTS_NAMES.get(name, name) if django.VERSION < (6, 0) else name
        assert getattr(compat, name) is import_string(".".join(filter(None, (PACKAGE, module, theirs)))), name


def test_so_are_the_backends_for_tests() -> None:
    assert compat.DummyBackend is import_string(DUMMY)
    assert compat.ImmediateBackend is import_string(IMMEDIATE)


def test_the_statuses_are_the_documented_ones() -> None:
    assert [status.value for status in compat.TaskResultStatus] == ["READY", "RUNNING", "FAILED", "SUCCESSFUL"]


def test_the_errors_are_related_as_documented() -> None:
    for error in (compat.InvalidTask, compat.TaskResultDoesNotExist, compat.TaskResultMismatch):
        assert issubclass(error, compat.TaskException)
    assert issubclass(compat.InvalidTaskBackend, ImproperlyConfigured)
