"""Errors of attempts, as text that PostgreSQL can store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from traceback import format_exception, format_tb
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_TEXT_CHARS = 100_000
"""Limit of a message.  No person reads a longer one, and its row and its log line would slow down others."""
MAX_TRACEBACK_CHARS = 200_000
"""Limit of a traceback, which ends with the message."""
MAX_PATH_CHARS = 1_000


class Unprintable(Exception):
    """Replacement of an exception that cannot be printed, for receivers of signals and for logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Error that ended an attempt: the dotted path of the exception's class, its message, its traceback."""

    message: str
    error_class: str | None = None
    traceback: str | None = None
    printable: bool = True
    """Whether Python can print the exception, within the limits of length."""

    @classmethod
    def of(cls, error: BaseException | str) -> Error:
        """Returns the error of an exception, with limited texts.  It never raises, whatever methods of it do."""
        if issubclass(type(error), str):  # isinstance() would also ask the exception
            return cls(message=bounded(cast("str", error), MAX_TEXT_CHARS))
        return cls._of_exception(cast("BaseException", error))

    @classmethod
    def _of_exception(cls, error: BaseException) -> Error:
        path = path_of(type(error))
        message = _made(lambda: str(error), lambda why: f"{_name_of(type(error))} (its text is not available: {why})")
        message = message or _name_of(type(error))
        shown = bounded(message, MAX_TEXT_CHARS)
        printed = ""  # a huge text would be copied several times
        if shown == message:
            printed = _made(lambda: "".join(format_exception(error)), lambda _: "")
        traceback = bounded(printed or _frames(error, f"{path}: {shown}"), MAX_TRACEBACK_CHARS)
        return cls(message=shown, error_class=path, traceback=traceback, printable=traceback == printed)

    def as_json(self) -> str:
        words = {"class": self.error_class, "message": self.message, "traceback": self.traceback}
        return json.dumps({name: storable(text) for name, text in words.items()})


def to_log(error: BaseException) -> BaseException:
    """Returns the ``exc_info`` for a log line.  An exception that cannot be printed would make logging itself raise."""
    described = Error.of(error)
    return error if described.printable else stand_in(described)


def stand_in(error: Error) -> Unprintable:
    return Unprintable(f"{error.error_class}: {error.message}")


def storable(text: str | None) -> str | None:
    """Returns ``text`` without characters that PostgreSQL cannot store (NUL, lone surrogates), as in foreign errors."""
    if text is None:
        return None
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def bounded(text: str, chars: int) -> str:
    """Returns ``text``, or its beginning and its end if it is too long: these matter most in a traceback.

    >>> bounded("a" * 50 + "b" * 50, 20)
    'aaaaaaaaaa … (80 characters left out) … bbbbbbbbbb'
    """
    if len(text) <= chars:
        return text
    half = chars // 2
    return f"{text[:half]} … ({len(text) - 2 * half} characters left out) … {text[-half:]}"


def _made(make: Callable[[], str], otherwise: Callable[[str], str]) -> str:
    """Returns the text of ``make`` as a plain str; if it raises, that of ``otherwise`` for the error's class."""
    try:
        return str.__str__(make())  # a plain copy if the text is of a subclass of the project
    except BaseException as trouble:  # noqa: BLE001 -- the error of an error must not hide the first one
        return otherwise(_name_of(type(trouble)))


def _frames(error: BaseException, last_line: str) -> str:
    """Returns the traceback without methods of the exception's class, which may redefine ``__traceback__``."""
    frames = vars(BaseException)["__traceback__"].__get__(error)
    lines = _made(lambda: "".join(format_tb(frames)), lambda _: "")
    return f"Traceback (most recent call last):\n{lines}{last_line}\n"


def path_of(kind: type) -> str:
    module: Any = _of_type(kind, "__module__")
    name = _name_of(kind)
    path = f"{module}.{name}" if isinstance(module, str) else name
    return bounded(path, MAX_PATH_CHARS)


def _name_of(kind: type) -> str:
    return bounded(str(_of_type(kind, "__qualname__")), MAX_PATH_CHARS)


def _of_type(kind: type, name: str) -> Any:
    """Returns an attribute of a class by Python's own descriptor: a metaclass may redefine it as anything."""
    return vars(type)[name].__get__(kind)
