"""Fields of a frozen dataclass with slots that are looked up when somebody looks at them, and not before.

Until then the object is of a subclass that stands before those slots; then it is an ordinary one, equal to any other.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    LookUp = Callable[[], Mapping[str, Any]]


def later(instance: Any, *names: str, look_up: LookUp) -> None:
    """The fields ``names`` get their values from ``look_up()``, once, when one of them is read."""
    kind = type(instance)
    # The values that it will have are not there yet, so there is room for the way to them.
    getattr(kind, names[0]).__set__(instance, Unknown(look_up))
    object.__setattr__(instance, "__class__", waiting(kind, names))  # type: ignore[arg-type]  # a type has a hash


def is_known(instance: Any) -> bool:
    return not isinstance(vars(type(instance)).get("waits_for"), tuple)


def know(instance: Any) -> None:
    """Looks its fields up, if nobody has yet."""
    kind = type(instance)
    names: tuple[str, ...] = vars(kind).get("waits_for", ())
    if not names:
        return
    plain = kind.__mro__[1]
    unknown = getattr(plain, names[0]).__get__(instance, plain)
    if not isinstance(unknown, Unknown):  # another thread has looked at the same time
        return
    values = unknown.look_up()
    for name in reversed(names):  # who looks at the same time finds the way until everything is there
        getattr(plain, name).__set__(instance, values[name])
    object.__setattr__(instance, "__class__", plain)


class Unknown:
    """Stands in the slot of a value that is not known."""

    def __init__(self, look_up: LookUp) -> None:
        self.look_up = look_up


class LazySlot:
    """Stands before a slot: who reads it has all that is unknown looked up."""

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
    """The subclass, without slots of its own: only so may an object change from one to the other."""

    def known(method: str) -> Any:
        def call(self: Any, *arguments: Any) -> Any:
            know(self)
            return getattr(self, method)(*arguments)

        return call

    methods = {method: known(method) for method in ("__eq__", "__hash__", "__repr__", "__reduce_ex__")}
    slots = {name: LazySlot(getattr(kind, name)) for name in names}
    hidden = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__, "waits_for": names}
    return type(kind.__name__, (kind,), {**hidden, **methods, **slots})
