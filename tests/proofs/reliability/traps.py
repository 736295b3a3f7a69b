"""Stages of a worker's life at which it can be killed: whoever comes by first and finds the trap's file dies there."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django_pgqueue.worker import process
from django_pgqueue.worker.record import recorder
from django_pgqueue.worker.run import atomic

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = "STORM_FOLDER"
TRAPS = "STORM_TRAPS"
"""Another folder of traps, for a worker that steps into none."""


def path_of(stage: str) -> str:
    return os.path.join(os.environ[FOLDER], os.environ.get(TRAPS, "traps"), stage.replace(" ", "-"))  # noqa: PTH118 -- for each job: no objects


def trap(stage: str) -> None:
    try:
        os.unlink(path_of(stage))  # noqa: PTH108 -- only one can unlink it
    except FileNotFoundError:
        return
    note_killed(os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


def note_killed(pid: int) -> None:
    """That we did it: a worker process that somebody else kills is found out (invariants.py)."""
    with Path(os.environ[FOLDER], "killed").open("a") as file:
        file.write(f"{pid}\n")


def lay(stage: str) -> Path:
    path = Path(path_of(stage))
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return path


def set_up() -> None:
    """Puts the traps that are not in the tasks around the worker's own steps."""
    slots: Any = vars(process)["Slots"]  # the older worker has them in another module
    slots.submit = before(slots.submit, "claimed")
    atomic.complete = after(atomic.complete, "completed")
    module: Any = recorder  # the one that calls it by this name
    module.record = after(module.record, "recorded")
    if hasattr(module, "Successes"):  # the last release prepares nothing
        module.Successes.record = after(module.Successes.record, "recorded")
    with contextlib.suppress(ImportError):  # the last release has none
        steps: Any = importlib.import_module("django_pgqueue.durable.steps")
        steps.Steps.record = after(steps.Steps.record, "recorded a step")


def before(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
    def trapped(*args: Any, **kwargs: Any) -> Any:
        trap(stage)
        return function(*args, **kwargs)

    return trapped


def after(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
    def trapped(*args: Any, **kwargs: Any) -> Any:
        answer = function(*args, **kwargs)
        trap(stage)
        return answer

    return trapped
