"""From the name in a message to the task that it means: only registered tasks are ever run."""

from __future__ import annotations

import datetime as dt
import importlib
import re
import sys
from functools import cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.utils.module_loading import autodiscover_modules

from django_pgqueue.compat import Task
from django_pgqueue.exceptions import UnknownTask

if TYPE_CHECKING:
    from types import ModuleType

    from django_pgqueue.compat import AnyTask

DOTTED_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def autodiscover() -> None:
    """Imports the ``tasks`` module of every installed app."""
    autodiscover_modules("tasks")


@cache
def find(path: str) -> Any:
    """The task at a dotted path such as ``"shop.tasks.send_receipt"``.

    A message is data: its words must not import just any module.  What has been imported is searched, and what belongs
    to the same top-level package as an installed app is imported.
    """
    module_path, _, name = path.rpartition(".")
    found = vars(_module(module_path, path)).get(name)
    if not issubclass(type(found), Task):  # isinstance() would wake lazy objects, which may not be ready
        message = f"{path!r} is not a task: {module_path} has " + (
            f"a {type(found).__name__} of that name. Declare it with @task." if found is not None else f"no {name!r}."
        )
        raise UnknownTask(message)
    return found


def scheduled() -> list[AnyTask]:
    """The tasks that declare a schedule, from the modules that have been imported, by path."""
    found = {}
    for module_path, module in list(sys.modules.items()):
        # A module may be anything that somebody has put there.
        for name, value in list(getattr(module, "__dict__", {}).items()):
            # Under other names there are other modules' imports, and copies that using() has made.
            # type(), because isinstance() would wake lazy objects, which may not be ready.
            if issubclass(type(value), Task) and getattr(value, "schedule", None):
                path = f"{module_path}.{name}"
                if path == value.module_path:
                    found[path] = value
    return [found[path] for path in sorted(found)]


def is_internal(path: str) -> bool:
    """Whether a task is this package's own: its pages enqueue it, and nothing else has a reason to."""
    return path.startswith("django_pgqueue.")


@cache
def timeout_seconds(path: str) -> float | None:
    """How long an attempt of the task at a dotted path may take."""
    timeout = getattr(find(path), "timeout", None)
    return timeout.total_seconds() if isinstance(timeout, dt.timedelta) else timeout


@cache
def is_async(path: str) -> bool:
    """Whether the task at a dotted path is a coroutine function."""
    return iscoroutinefunction(find(path).func)


def _module(module_path: str, path: str) -> ModuleType:
    # __main__ is another module in each process, and the one of a package does what a command does.
    if (imported := sys.modules.get(module_path)) is not None and module_path != "__main__":
        return imported
    if not DOTTED_PATH.fullmatch(path) or "__main__" in path.split("."):
        message = f"{path!r} is not the dotted path of a task."
        raise UnknownTask(message)
    if module_path.partition(".")[0] not in {config.name.partition(".")[0] for config in apps.get_app_configs()}:
        message = (
            f"The module of the task {path!r} has not been imported and belongs to no installed app. "
            "Import it in the ready() of an app, or add its package to INSTALLED_APPS."
        )
        raise UnknownTask(message)
    try:
        return importlib.import_module(module_path)
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported must not end the worker
        message = f"The module of the task {path!r} can not be imported: {type(error).__name__}: {error}."
        raise UnknownTask(message) from error
