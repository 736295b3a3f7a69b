"""One command on a fresh machine: make the project's environment on first use, then continue inside it.

The commands are folders with a `__main__.py` that begins with::

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from example_project.development import bootstrap

    bootstrap.enter("demo")  # returns only inside the environment, with the dependency group "demo" installed

Standard library only, and readable by an old Python 3 (see interpreter.py).
"""

import sys
from contextlib import contextmanager

from example_project.development import interpreter, machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C has ended."""


def enter(*names: str) -> None:
    """Return if this is an up-to-date environment with these dependency groups and extras.

    Else make it, and restart this command in it.

    The environment is `.venv` at the repository's root, or the folder that PGQUEUE_VENV names.
    """
    with until_interrupted():
        enter_or_stop(names)


@contextmanager
def until_interrupted() -> "Iterator[None]":
    """End the program with a sentence, and not with a traceback, when Ctrl-C comes within."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. The same command goes on where it was.\n")
        sys.exit(INTERRUPTED)


def enter_or_stop(names: "tuple[str, ...]") -> None:
    interpreter.require(sys.argv)
    problem = machine.loopback_problem()
    if problem:
        sys.exit(problem)
    from example_project.development.environment import Environment, NoEnvironment  # noqa: PLC0415 - in newer syntax

    try:
        environment = Environment.provided(names)
    except NoEnvironment as error:
        sys.exit(str(error))
    if not environment.active:
        environment.execute(sys.orig_argv[1:])
