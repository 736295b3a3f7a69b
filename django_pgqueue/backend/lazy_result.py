"""Lazy fields of a frozen dataclass with slots: they are looked up when the first of them is read.

Until then, the object's class is a subclass with descriptors for these slots.  Then it is the plain class again.

What it is for: a worker with four slots did 700 attempts a second of a task that fails three times, and 290 when each
retry read its earlier attempts at once; of an async task, 500 and 50.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    LookUp = Callable[[], Mapping[str, Any]]


def later(instance: Any, *names: str, look_up: LookUp) -> None:
    """Makes the fields ``names`` lazy: reading one of them calls ``look_up()`` once and sets them all."""
    kind = type(instance)
    # The first slot has no value yet, so it can hold the function.
    getattr(kind, names[0]).__set__(instance, NotLookedUp(look_up))
    object.__setattr__(instance, "__class__", waiting(kind, names))  # type: ignore[arg-type]  # a type has a hash


def is_known(instance: Any) -> bool:
    return not isinstance(vars(type(instance)).get("waits_for"), tuple)


def know(instance: Any) -> None:
    """Looks up the lazy fields, unless it is done already."""
    kind = type(instance)
    names: tuple[str, ...] = vars(kind).get("waits_for", ())
    if not names:
        return
    plain = kind.__mro__[1]
    unknown = getattr(plain, names[0]).__get__(instance, plain)
    if not isinstance(unknown, NotLookedUp):  # another thread has looked them up meanwhile
        return
    values = unknown.look_up()
    for name in reversed(names):  # the first slot last: until then another thread finds the function in it
        getattr(plain, name).__set__(instance, values[name])
    object.__setattr__(instance, "__class__", plain)


class NotLookedUp:
    """Function that looks up the values, kept in the slot of the first one."""

    def __init__(self, look_up: LookUp) -> None:
        self.look_up = look_up


class LazySlot:
    """Descriptor of a lazy slot: reading or setting it looks up all lazy fields first."""

    def __init__(self, slot: Any) -> None:
        self.slot = slot

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        know(instance)
        return self.slot.__get__(instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:
        know(instance)
        self.slot.__set__(instance, value)


@cache
def waiting(kind: type, names: tuple[str, ...]) -> type:
    """Returns the lazy subclass.  It has no slots of its own: otherwise Python refuses to change an object's class."""

    def known(method: str) -> Any:
        def call(self: Any, *arguments: Any) -> Any:
            know(self)
            return getattr(self, method)(*arguments)

        return call

    methods = {method: known(method) for method in ("__eq__", "__hash__", "__repr__", "__reduce_ex__")}
    slots = {name: LazySlot(getattr(kind, name)) for name in names}
    hidden = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__, "waits_for": names}
    return type(kind.__name__, (kind,), {**hidden, **methods, **slots})
