"""Discovery: imports the modules that declare tasks, and logs which of them is slow."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.apps import apps
from django.utils.module_loading import module_has_submodule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

logger = logging.getLogger("django_pgqueue.worker")

SLOW_SECONDS = 5.0
"""Seconds after which the log names the module that is being imported.  Each further wait is twice as long."""


def import_tasks() -> None:
    """Imports the module ``tasks`` of every installed app, or all modules of a package of that name."""
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, "tasks"):
            _import_with_submodules(f"{config.name}.tasks")


def _import_with_submodules(name: str) -> None:
    module = _import(name)
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        if not _is_no_part_of_the_program(found.name.rpartition(".")[2]):
            _import_with_submodules(found.name)


def _is_no_part_of_the_program(word: str) -> bool:
    return word in {"__main__", "tests", "conftest"} or word.startswith("test_")


def _import(name: str) -> ModuleType:
    if (imported := sys.modules.get(name)) is not None and not is_unfinished(imported):
        return imported
    with announced(name):
        return importlib.import_module(name)


def is_unfinished(module: ModuleType) -> bool:
    """Whether a thread is still importing the module, so that some of its names may be missing."""
    # Python's own import reads the same attribute.  names_of() bypasses the module's class, which may be a lazy one.
    return bool(getattr(names_of(module).get("__spec__"), "_initializing", False))


def names_of(module: ModuleType) -> dict[str, object]:
    """Returns the names of a module without calling its class: a lazy module would import itself then."""
    try:
        names = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return names if isinstance(names, dict) else {}


@contextmanager
def announced(name: str) -> Iterator[None]:
    """Watches the import of a module from another thread."""
    is_done = threading.Event()
    thread = threading.Thread(target=_watch, args=[name, threading.get_ident(), is_done], daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()  # a worker forks only while it has no other threads


def _watch(name: str, importer: int, is_done: threading.Event) -> None:
    seconds = SLOW_SECONDS
    while not is_done.wait(seconds):
        frame = sys._current_frames().get(importer)  # noqa: SLF001 -- there is no other way to another thread's place
        at = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "nowhere"
        logger.warning("importing module=%s takes long, and is at=%s", name, at)
        seconds *= 2
