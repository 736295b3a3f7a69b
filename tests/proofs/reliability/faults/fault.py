"""What a fault is: a name, a lane in which it is done one after the other, and what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.proofs.reliability.storm import Storm

    Do = Callable[[Storm, random.Random], dict[str, Any] | None]


class Skipped(Exception):
    """It cannot be done on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    lane: str
    weight: float
    """How often it is chosen, beside the others of its lane."""
    short: bool
    """Whether it is quick enough for the short storm."""
    stops_everybody: bool
    """Whether nobody can work meanwhile, and not only those whom it aims at."""
    do: Do


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, lane: str, *, weight: float = 1.0, short: bool = True, stops_everybody: bool = False
) -> Callable[[Do], Do]:
    def register(do: Do) -> Do:
        FAULTS[name] = Fault(name, lane, weight, short, stops_everybody, do)
        return do

    return register
