"""Everything that a task can do wrong, by name."""

from __future__ import annotations

import asyncio
import ctypes
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from django_pgqueue.tasks import task
from tests.support.diary import Diary

if TYPE_CHECKING:
    from collections.abc import Callable


class NotAnException(BaseException):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError(self.args)


class Nonsense(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)


def refuse(self: Any) -> Any:
    raise SystemExit(8)


Annotated: Any = type("Annotated", (Exception,), {"__module__": __name__, "__notes__": property(refuse)})
Traceless: Any = type("Traceless", (Exception,), {"__module__": __name__, "__traceback__": property(refuse)})


class Nobodys(Exception):
    __module__: Any = 5


Masked: Any = type("Masked", (Exception,), {"__module__": __name__, "__class__": property(refuse)})


class Closed(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Silent(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class OfASilentClass(Exception, metaclass=Silent):
    pass


class Word(str):
    """A text of the project's own."""

    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError

    def __format__(self, spec: str) -> str:
        raise RuntimeError

    replace = split = encode = __len__  # type: ignore[assignment]


class OwnWords(Exception):
    def __str__(self) -> str:
        return Word("own words")


class Folded(ExceptionGroup[ValueError]):
    @property
    def exceptions(self) -> Any:
        raise RuntimeError


def recurse() -> None:
    recurse()


def throw(error: BaseException) -> NoReturn:
    raise error


def throw_chained() -> NoReturn:
    try:
        throw(Unprintable())
    except Unprintable as error:
        message = "second"
        raise ValueError(message) from error


def throw_syntax() -> NoReturn:
    # As a compiler of templates may, which has read its file as bytes: Python cannot print it.
    text: Any = b"text"
    raise SyntaxError("bad", ("f.py", 1, 5, text))


def throw_circle() -> NoReturn:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


ERRORS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "exception": (lambda: throw(ValueError("one")), "builtins.ValueError", "one"),
    "exit": (lambda: throw(SystemExit(3)), "builtins.SystemExit", "3"),
    "exit without a word": (lambda: throw(SystemExit()), "builtins.SystemExit", "SystemExit"),
    "interrupt": (lambda: throw(KeyboardInterrupt()), "builtins.KeyboardInterrupt", "KeyboardInterrupt"),
    "generator exit": (lambda: throw(GeneratorExit()), "builtins.GeneratorExit", "GeneratorExit"),
    "no exception": (lambda: throw(NotAnException("x")), f"{__name__}.NotAnException", "x"),
    "recursion": (recurse, "builtins.RecursionError", "maximum recursion depth exceeded"),
    "memory": (lambda: throw(MemoryError()), "builtins.MemoryError", "MemoryError"),
    "unprintable": (lambda: throw(Unprintable()), f"{__name__}.Unprintable", "Unprintable (its text is not available"),
    "nonsense": (lambda: throw(Nonsense()), f"{__name__}.Nonsense", "Nonsense (its text is not available"),
    "chained": (throw_chained, "builtins.ValueError", "second"),
    "group": (lambda: throw(ExceptionGroup("many", [ValueError("a")])), "builtins.ExceptionGroup", "many (1 sub-"),
    "nul": (lambda: throw(ValueError("a\x00b")), "builtins.ValueError", "a\N{REPLACEMENT CHARACTER}b"),
    "surrogate": (lambda: throw(ValueError("a\ud800b")), "builtins.ValueError", "a?b"),
    "long": (lambda: throw(ValueError("long " * 100_000)), "builtins.ValueError", "long long"),
    "very long": (lambda: throw(ValueError("x" * 50_000_000)), "builtins.ValueError", "xxx"),
    "syntax": (throw_syntax, "builtins.SyntaxError", "bad (f.py, line 1)"),
    "circle": (throw_circle, "builtins.ValueError", "first"),
    "endless": (lambda: throw(Endless()), f"{__name__}.Endless", "Endless (its text is not available: RecursionError)"),
    "notes": (lambda: throw(Annotated("a")), f"{__name__}.Annotated", "a"),
    "traceback": (lambda: throw(Traceless("a")), f"{__name__}.Traceless", "a"),
    "module": (lambda: throw(Nobodys("a")), "Nobodys", "a"),
    "class": (lambda: throw(Masked("a")), f"{__name__}.Masked", "a"),
    "closed": (lambda: throw(Closed("a")), f"{__name__}.Closed", "a"),
    "silent class": (lambda: throw(OfASilentClass("a")), f"{__name__}.OfASilentClass", "a"),
    "own words": (lambda: throw(OwnWords()), f"{__name__}.OwnWords", "own words"),
    "folded": (lambda: throw(Folded("a", [ValueError()])), f"{__name__}.Folded", "a (1 sub-exception)"),
}

UNPRINTABLE = ("syntax", "notes", "traceback", "class", "closed", "silent class", "very long")
"""Those that Python, or a log, cannot print."""


@task
def raise_error(name: str) -> None:
    ERRORS[name][0]()


@task
async def raise_error_on(name: str) -> None:
    ERRORS[name][0]()


@task(max_attempts=3, backoff=lambda *_: 0.0)
def raise_again(name: str) -> None:
    ERRORS[name][0]()


@task
async def cancel_all_on() -> None:
    """As a task may that wants to end what it has started, and asks for all that there is."""
    for other in asyncio.all_tasks():
        if other is not asyncio.current_task():
            other.cancel()


@task
def end_thread() -> None:
    """As a library in C may that does not know whose thread it is in."""
    ctypes.CDLL(None).pthread_exit(None)


@task
async def end_thread_on() -> None:
    ctypes.CDLL(None).pthread_exit(None)


@task
async def block_on(word: str) -> None:
    diary = Diary.of_this_process()
    diary.write(word)
    diary.wait_for(word)


@task
def import_halfway() -> None:
    """As code that imports inside of its functions does."""
    import_module("tests.worker.halfway")
