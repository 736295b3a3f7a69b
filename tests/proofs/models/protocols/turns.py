"""Turns: however much one lane has, another that waits has its turn after each of the others has had one.

Lanes with messages, and dequeues that serve the lane at the head of the line.  What stands for what:

====================  =============================================================================================
something arrives     pgqueue_lane_arm: ``next_at = least(next_at, greatest(dequeue_at, now))``: who is in line stays
                      where it is, who is not goes to the end, however old its message is
has its turn          pgqueue_lane_dequeue: ``order by next_at, turned_at``, and then ``turned_at = clock_timestamp()``
====================  =============================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "who had its turn keeps its place": "keeps its place",
    "each arrival is a place in the line": "counted twice",
    "who comes with an old message goes to the front": "to the front",
    "an arrival sends its lane to the end": "to the end",
}

LANES = 3


class State(NamedTuple):
    line: tuple[int, ...] = ()
    waiting: tuple[int, ...] = (0,) * LANES
    arrived: tuple[int, ...] = (0,) * LANES
    passed: tuple[int, ...] = (0,) * LANES
    """How many turns of others each lane has waited for."""


class Turns:
    def __init__(self, variant: str = "true", *, messages: int = 3) -> None:
        self.broken = VARIANTS[variant]
        self.messages = messages

    def first(self) -> State:
        return State()

    def wrong(self, state: State) -> str | None:
        if any(passed >= LANES for passed in state.passed):
            return "a lane waits, and another one has its turn again"
        return None

    def left(self, state: State) -> str | None:
        return "a lane has messages, and is not in line" if any(state.waiting) else None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for lane in range(LANES):
            if state.arrived[lane] < self.messages:
                yield f"perhaps something arrives in lane {lane}", self._arrive(state, lane)
        if state.line:
            yield f"lane {state.line[0]} has its turn", self._turn(state, state.line[0])

    def _arrive(self, state: State, lane: int) -> State:
        line = state.line
        if self.broken == "to the end":
            line = (*(other for other in line if other != lane), lane)
        elif lane not in line and self.broken == "to the front":
            line = (lane, *line)
        elif lane not in line or self.broken == "counted twice":
            line = (*line, lane)
        return state._replace(
            line=line,
            waiting=replaced(state.waiting, lane, state.waiting[lane] + 1),
            arrived=replaced(state.arrived, lane, state.arrived[lane] + 1),
        )

    def _turn(self, state: State, lane: int) -> State:
        waiting = replaced(state.waiting, lane, max(0, state.waiting[lane] - 1))
        line = state.line[1:]
        if waiting[lane] and self.broken != "counted twice":
            line = (lane, *line) if self.broken == "keeps its place" else (*line, lane)
        passed = tuple(
            0 if other == lane or not waiting[other] else count + 1 for other, count in enumerate(state.passed)
        )
        return state._replace(line=line, waiting=waiting, passed=passed)
