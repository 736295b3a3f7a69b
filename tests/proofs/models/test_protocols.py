"""Every interleaving of the protocols, and the ways to get them wrong: see ``tests/proofs/models/protocols``.

    python3 tests tests/proofs/models/test_protocols.py -s

prints how many states there are.  ``PGQUEUE_MODEL_LONG=1`` tries more messages.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.proofs.models.protocols import claims, deaths, ends, events, floors, lanes, room, sleepers, steps, turns
from tests.proofs.models.protocols.checker import explore

IS_LONG = "PGQUEUE_MODEL_LONG" in os.environ
PROTOCOLS: dict[str, tuple[Any, Any, list[dict[str, int]]]] = {
    "claims": (claims.Claims, claims.VARIANTS, [{}]),
    "sleepers": (sleepers.Sleepers, sleepers.VARIANTS, [{"messages": 2}, *([{"messages": 3}] if IS_LONG else [])]),
    "room": (room.Room, room.VARIANTS, [{"messages": 2}]),
    "lanes": (lanes.Lanes, lanes.VARIANTS, [{"messages": 2, "room": 1}, {"messages": 3, "room": 2}]),
    "floors": (floors.Floors, floors.VARIANTS, [{"messages": 2}, *([{"messages": 3}] if IS_LONG else [])]),
    "ends": (ends.Ends, ends.VARIANTS, [{"messages": 2}, *([{"messages": 3}] if IS_LONG else [])]),
    "events": (events.Events, events.VARIANTS, [{"messages": 3}]),
    "steps": (steps.Steps, steps.VARIANTS, [{}]),
    "deaths": (deaths.Deaths, deaths.VARIANTS, [{"troubles": 2}, *([{"troubles": 3}] if IS_LONG else [])]),
    "turns": (turns.Turns, turns.VARIANTS, [{"messages": 3}, *([{"messages": 5}] if IS_LONG else [])]),
}
"""What each protocol is, how it can be broken, and the sizes in which it is tried, the smallest first."""


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_holds_in_every_order(name: str) -> None:
    protocol, _, sizes = PROTOCOLS[name]
    for size in sizes:
        verdict = explore(protocol("true", **size))
        print(f"\n{name} {size or ''}: {verdict}")
        assert verdict.wrong is None, str(verdict)
        assert verdict.states > 500, "that is hardly all there is"


@pytest.mark.parametrize(
    ("name", "variant"), [(name, v) for name, (_, variants, _) in PROTOCOLS.items() for v in variants if v != "true"]
)
def test_a_protocol_that_is_broken_on_purpose_is_found(name: str, variant: str) -> None:
    protocol, _, sizes = PROTOCOLS[name]
    for size in sizes:
        verdict = explore(protocol(variant, **size))
        if verdict.wrong is not None:
            print(f"\n{name}, {variant}: {verdict}")
            return
    pytest.fail(f"{variant}: {verdict}")
