"""Why an attempt ended, in words that PostgreSQL can store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from traceback import format_exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Why an attempt ended: the dotted path of the exception's class, its message, its traceback."""

    message: str
    error_class: str | None = None
    traceback: str | None = None

    @classmethod
    def of(cls, error: BaseException | str) -> Error:
        if isinstance(error, str):
            return cls(message=error)
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        return cls(message=_text_of(error), error_class=path, traceback="".join(format_exception(error)))

    def as_json(self) -> str:
        words = {"class": self.error_class, "message": self.message, "traceback": self.traceback}
        return json.dumps({name: storable(text) for name, text in words.items()})


def storable(text: str | None) -> str | None:
    """``text`` without what PostgreSQL can not store (NUL, lone surrogates): for the words of foreign errors."""
    if text is None:
        return None
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _text_of(error: BaseException) -> str:
    try:
        return str(error) or type(error).__qualname__
    except Exception as unprintable:  # noqa: BLE001 -- the error of an error must not hide the first one
        return f"{type(error).__qualname__} (its text can not be made: {type(unprintable).__qualname__})"
