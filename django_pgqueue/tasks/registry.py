"""Registry of tasks by the name in a message: the worker runs registered tasks only."""

from __future__ import annotations

import datetime as dt
import re
import sys
import time
from functools import cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.apps import apps

from django_pgqueue.compat import Task
from django_pgqueue.exceptions import TaskBeingImported, UnknownTask
from django_pgqueue.tasks import discovery
from django_pgqueue.tasks.parameters import Parameters

if TYPE_CHECKING:
    from types import ModuleType

    from django_pgqueue.compat import AnyTask

DOTTED_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
MAX_IMPORT_SECONDS = 10.0
"""Longest wait of an attempt for a thread that imports the module of its task.  Then it is tried again later."""
LOOK_EVERY_SECONDS = 0.01


_discovered: set[tuple[str, ...]] = set()
"""The sets of installed apps whose tasks were imported: tests may install others."""


def autodiscover() -> None:
    """Imports the modules that declare tasks, once."""
    installed = _installed()
    if installed not in _discovered:
        discovery.import_tasks()
        _discovered.add(installed)


def forget() -> None:
    """Forgets the tasks and apps that were found so far, for tests that make and delete tasks."""
    _discovered.clear()
    for cached in (find, timeout_seconds, is_async, is_sensitive, parameters):
        cached.cache_clear()


@cache
def find(path: str) -> Any:
    """Returns the task at a dotted path such as ``"shop.tasks.send_receipt"``.

    A message is data: no module is imported because a message names it.  Registered are the tasks in modules that
    ``autodiscover`` or the program itself has imported.  It returns at once, even if other threads are importing.
    """
    module_path, _, name = path.rpartition(".")
    module = _module(module_path, path)
    if discovery.is_unfinished(module):
        message = f"{path!r} is not available yet: another thread is importing {module_path}."
        raise TaskBeingImported(message)
    return _task_of(module, module_path, name, path)


def find_patiently(path: str) -> Any:
    """Returns the task as ``find`` does, but waits for a thread that is importing the module."""
    deadline = None
    while True:
        try:
            return find(path)
        except TaskBeingImported:
            deadline = deadline or time.monotonic() + MAX_IMPORT_SECONDS
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY_SECONDS)


def why_unknown(path: str) -> str | None:
    """Returns why this process does not know the task; None: it does, or its module is being imported."""
    try:
        find(path)
    except TaskBeingImported:
        return None
    except UnknownTask as error:
        return str(error)
    return None


def declared(path: str) -> Any:
    """Returns the task for an enqueue.  A module may enqueue a task while it is imported, once it has declared it."""
    try:
        return find(path)
    except TaskBeingImported:
        module_path, _, name = path.rpartition(".")
        return _task_of(_module(module_path, path), module_path, name, path)


def _task_of(module: ModuleType, module_path: str, name: str, path: str) -> Any:
    found = discovery.names_of(module).get(name)
    if not issubclass(type(found), Task):  # isinstance() would evaluate lazy objects, which may not be ready
        message = f"{path!r} is not a task: {module_path} has " + (
            f"a {type(found).__name__} of that name. Declare it with @task." if found is not None else f"no {name!r}."
        )
        raise UnknownTask(message)
    return found


def scheduled() -> list[AnyTask]:
    """Returns the tasks of imported modules that declare a schedule, in the order of their paths."""
    return [task for task in imported() if getattr(task, "schedule", None)]


def imported() -> list[AnyTask]:
    """Returns the tasks that imported modules declare, in the order of their paths."""
    found = {}
    for module_path, module in list(sys.modules.items()):
        # Any code may put any object into sys.modules.
        for name, value in list(getattr(module, "__dict__", {}).items()):
            # A task under another path is an import of another module's task, or a copy that using() has made.
            # type(), because isinstance() would evaluate lazy objects, which may not be ready.
            if issubclass(type(value), Task):
                path = f"{module_path}.{name}"
                if path == value.module_path:
                    found[path] = value
    return [found[path] for path in sorted(found)]


def is_internal(path: str) -> bool:
    """Whether a task is internal to this package.  Its admin enqueues it, and nothing else has a reason to."""
    return path.startswith("django_pgqueue.")


@cache
def timeout_seconds(path: str) -> float | None:
    """Returns how long an attempt of the task at a dotted path may take.  None: without limit."""
    timeout = getattr(find(path), "timeout", None)
    return timeout.total_seconds() if isinstance(timeout, dt.timedelta) else timeout


@cache
def is_async(path: str) -> bool:
    """Whether the task at a dotted path is a coroutine function."""
    return iscoroutinefunction(find(path).func)


@cache
def is_sensitive(path: str) -> bool:
    """Whether errors may not quote the arguments of the task at a dotted path."""
    return bool(getattr(find(path), "sensitive", False))


@cache
def parameters(path: str) -> Parameters:
    """Returns the parameters of the task at a dotted path."""
    return Parameters.of(find(path))


def declared_parameters(path: str) -> Parameters:
    """Returns the parameters of a task for an enqueue, which a module may do while it is imported."""
    try:
        return parameters(path)
    except TaskBeingImported:
        return Parameters.of(declared(path))


def _module(module_path: str, path: str) -> ModuleType:
    # __main__ is a different module in each process, and importing the __main__ of a package runs its command.
    if module_path != "__main__":
        if module_path in sys.modules:
            return sys.modules[module_path]
        if DOTTED_PATH.fullmatch(path) and "__main__" not in path.split("."):
            _discover_for(path)
            if module_path in sys.modules:
                return sys.modules[module_path]
            _look_for_its_package(module_path, path)
            message = (
                f"The task {path!r} is not registered: {module_path} has not been imported. Define tasks in the module "
                "'tasks' of an installed app, in a module that it imports, or in a module that ready() of an "
                "AppConfig imports. Add the import, and start the workers again."
            )
            raise UnknownTask(message)
    message = f"{path!r} is not the dotted path of a task."
    raise UnknownTask(message)


def _look_for_its_package(module_path: str, path: str) -> None:
    """Raises TaskBeingImported if a package above the module is being imported: it may still import the module."""
    words = module_path.split(".")
    for length in range(1, len(words)):
        package = sys.modules.get(".".join(words[:length]))
        if package is not None and discovery.is_unfinished(package):
            message = f"{path!r} is not available yet: another thread is importing {'.'.join(words[:length])}."
            raise TaskBeingImported(message)


def _discover_for(path: str) -> None:
    """Runs ``autodiscover`` once, when a site looks for its first task.  A worker has done it at its start."""
    if not apps.ready or _installed() in _discovered:
        return
    try:
        autodiscover()
    except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
        message = (
            f"The task {path!r} does not exist, or its module cannot be imported: {type(error).__name__}: {error}."
        )
        raise UnknownTask(message) from error


def _installed() -> tuple[str, ...]:
    return tuple(config.name for config in apps.get_app_configs())
