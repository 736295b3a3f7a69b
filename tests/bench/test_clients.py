"""Statements that are compared take turns."""

from __future__ import annotations

import time

import pytest

from tests.bench.clients import taking_turns, turns_of


def test_each_client_is_called_in_each_turn_for_its_time() -> None:
    said: list[str] = []

    def one() -> None:
        said.append("a")
        time.sleep(0.002)

    def other() -> None:
        said.append("b")
        time.sleep(0.001)

    rates = taking_turns([one, other], 0.06, turn_seconds=0.02, begin=lambda: said.append("|"))
    assert "".join(said).replace("a", "").replace("b", "") == "||||||"
    assert [set(turn) for turn in "".join(said).split("|")] == [
        {"a"},
        {"a", "b"},  # the next one is called once before its turn begins, so that nothing new is measured
        {"a", "b"},
        {"a", "b"},
        {"a", "b"},
        {"a", "b"},
        {"b"},
    ]
    assert 0 < rates[0] <= 500
    assert 0 < rates[1] <= 1000


@pytest.mark.parametrize(("seconds", "turns"), [(0.1, 1), (0.5, 1), (2.0, 4), (10.0, 20)])
def test_turns_are_short(seconds: float, turns: int) -> None:
    assert turns_of(seconds) == turns
