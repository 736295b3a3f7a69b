"""Redaction of sensitive values in errors."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_hides: ContextVar[bool] = ContextVar("pgqueue_hides", default=False)


@contextmanager
def redacted(hide: bool = True) -> Iterator[None]:
    """Keeps errors that are raised inside from quoting values, which are sensitive."""
    before = _hides.set(hide)
    try:
        yield
    finally:
        with suppress(ValueError):  # Python closes an unended coroutine in another context
            _hides.reset(before)


def is_redacting() -> bool:
    """Whether values may not be quoted here."""
    return _hides.get()


def quote(value: Any) -> str:
    """Returns the text with which an error quotes a value."""
    if _hides.get():
        return f"a {type(value).__qualname__} that is not shown, because it is sensitive"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 -- if repr() raises, the type is named instead
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= 80 else text[:77] + "..."
