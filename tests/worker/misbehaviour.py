"""Everything that a task can do wrong, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from django_pgqueue.tasks import task

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


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


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


ERRORS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "exception": (lambda: throw(ValueError("one")), "builtins.ValueError", "one"),
    "exit": (lambda: throw(SystemExit(3)), "builtins.SystemExit", "3"),
    "exit without a word": (lambda: throw(SystemExit()), "builtins.SystemExit", "SystemExit"),
    "interrupt": (lambda: throw(KeyboardInterrupt()), "builtins.KeyboardInterrupt", "KeyboardInterrupt"),
    "generator exit": (lambda: throw(GeneratorExit()), "builtins.GeneratorExit", "GeneratorExit"),
    "no exception": (lambda: throw(NotAnException("x")), f"{__name__}.NotAnException", "x"),
    "recursion": (recurse, "builtins.RecursionError", "maximum recursion depth exceeded"),
    "memory": (lambda: throw(MemoryError()), "builtins.MemoryError", "MemoryError"),
    "unprintable": (lambda: throw(Unprintable()), f"{__name__}.Unprintable", "Unprintable (its text can not be made"),
    "nonsense": (lambda: throw(Nonsense()), f"{__name__}.Nonsense", "Nonsense (its text can not be made"),
    "chained": (throw_chained, "builtins.ValueError", "second"),
    "group": (lambda: throw(ExceptionGroup("many", [ValueError("a")])), "builtins.ExceptionGroup", "many (1 sub-"),
    "nul": (lambda: throw(ValueError("a\x00b")), "builtins.ValueError", "a\N{REPLACEMENT CHARACTER}b"),
    "surrogate": (lambda: throw(ValueError("a\ud800b")), "builtins.ValueError", "a?b"),
    "long": (lambda: throw(ValueError("long " * 100_000)), "builtins.ValueError", "long long"),
}

INVALID = "django_pgqueue.exceptions.InvalidContent"
VALUES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "object": (object, "builtins.TypeError", "object"),
    "set": (lambda: {1}, "builtins.TypeError", "set"),
    "nan": (lambda: float("nan"), INVALID, "nan"),
    "infinity": (lambda: [float("-inf")], INVALID, "-inf"),
    "nul": (lambda: {"a": "b\x00"}, INVALID, "NUL"),
    "surrogate": (lambda: "\ud800", INVALID, "not valid Unicode"),
    "bytes": (lambda: b"\xff", "", "UTF-8|Unsupported"),
    "number keys": (lambda: {1: 2}, INVALID, "key 1"),
    "deep": (lambda: nested(100_000), "", "nested too deeply|recursion"),
    "large": (lambda: "x" * 2_000_000, "django_pgqueue.exceptions.ContentTooLarge", "MAX_CONTENT_BYTES"),
    "generator": (lambda: (n for n in range(3)), "builtins.TypeError", "generator"),
}


@task
def raise_error(name: str) -> None:
    ERRORS[name][0]()


@task
def answer(name: str) -> Any:
    return VALUES[name][0]()
