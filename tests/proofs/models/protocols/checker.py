"""Every state that a protocol can come to, breadth first: what goes wrong is found by a shortest way to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol as Interface, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

S = TypeVar("S", bound="Hashable")


class Protocol(Interface[S]):
    def first(self) -> S: ...

    def steps(self, state: S, /) -> Iterator[tuple[str, S]]:
        """What can happen next, and what is then.  A step whose name begins with "perhaps" need never happen."""

    def wrong(self, state: S, /) -> str | None:
        """What must not be, if it is."""

    def left(self, state: S, /) -> str | None:
        """What is not done yet, of a state in which nothing happens any more by itself."""


@dataclass(frozen=True, slots=True)
class Verdict:
    states: int
    wrong: str | None = None
    way: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.wrong is None:
            return f"{self.states} states, and nothing is wrong"
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.way, 1))
        return f"{self.wrong}, after\n{steps}\n({self.states} states)"


def explore(protocol: Protocol[S], *, most: int = 2_000_000) -> Verdict:
    """Tries every interleaving.  Ends at the first state that is wrong, or from which nobody goes on though something
    is left to do.
    """
    first = protocol.first()
    came_from: dict[S, tuple[S, str] | None] = {first: None}
    line: list[S] = [first]
    for state in line:  # grows while it is read
        wrong = protocol.wrong(state)
        goes_on = False
        for step, after in protocol.steps(state):
            goes_on = goes_on or not step.startswith("perhaps")
            if after not in came_from:
                came_from[after] = (state, step)
                line.append(after)
        wrong = wrong or (None if goes_on else protocol.left(state))
        if wrong:
            return Verdict(len(came_from), wrong, tuple(_way(came_from, state)))
        assert len(came_from) <= most, f"more than {most} states: the protocol is too large to be tried out"
    return Verdict(len(came_from))


def _way(came_from: dict[S, tuple[S, str] | None], state: S) -> Iterable[str]:
    way: list[str] = []
    while (before := came_from[state]) is not None:
        state, step = before
        way.append(step)
    return reversed(way)


def replaced(values: tuple[S, ...], index: int, value: S) -> tuple[S, ...]:
    return (*values[:index], value, *values[index + 1 :])
