"""Lets the slots of a worker send signals without a lock, by way of a private cache of Django's.

Without ``use_caching``, each ``send`` of a signal takes its lock.  Slots with short jobs would spend their time on
handing the lock, and the interpreter, to one another: 10,500 jobs a second instead of 11,500, and 62 µs of CPU a job
instead of 56 (four slots on Python 3.11, medians of six drains).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.dispatch import Signal


def cache_receivers(signals: Iterable[Signal]) -> None:
    for signal in signals:
        if not signal.use_caching:
            signal.sender_receivers_cache = _Cache()
            signal.use_caching = True


class _Cache(WeakKeyDictionary[Any, Any]):
    """Cache of the receivers of each sender.  It skips senders without weak references, like None."""

    def get(self, sender: Any, default: Any = None) -> Any:
        try:
            return super().get(sender, default)
        except TypeError:
            return default

    def __setitem__(self, sender: Any, receivers: Any) -> None:
        with suppress(TypeError):
            super().__setitem__(sender, receivers)
