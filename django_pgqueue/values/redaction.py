"""What errors may quote."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_hides: ContextVar[bool] = ContextVar("pgqueue_hides", default=False)


@contextmanager
def redacted(hide: bool = True) -> Iterator[None]:
    """Errors that are raised inside do not quote values: they are sensitive."""
    before = _hides.set(hide)
    try:
        yield
    finally:
        _hides.reset(before)


def is_redacting() -> bool:
    """Whether values may not be quoted here."""
    return _hides.get()


def quote(value: Any) -> str:
    """A value, as an error quotes it."""
    if _hides.get():
        return f"a {type(value).__qualname__} that is not shown, because it is sensitive"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 -- what cannot be shown is named
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= 80 else text[:77] + "..."
