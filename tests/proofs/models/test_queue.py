"""The SQL against the reference.

The short form is part of every run.  The long form, and a form that can be replayed::

    PGQUEUE_MODEL_LONG_EXAMPLES=500 python3 tests tests/proofs/models/test_queue.py -s
    PGQUEUE_MODEL_SEED=7 python3 tests tests/proofs/models/test_queue.py -s

    PGQUEUE_MODEL_MUTATIONS=all python3 tests tests/proofs/models/test_queue.py -s

A failure prints the steps that lead to it, as short as they could be made, the seed, and what has to be written above
the test to run that one example again (``@reproduce_failure``).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.proofs.models.machine import SESSIONS, Figures, Machine
from tests.proofs.models.mutations import MUTATIONS, broken, broken_key

if TYPE_CHECKING:
    from tests.support.fixtures.sessions import Connect

LONG_EXAMPLES = int(os.environ.get("PGQUEUE_MODEL_LONG_EXAMPLES", "0"))
"""So many of 40 steps or more there have to be: one seed after the other, until they are there."""
EXAMPLES = int(os.environ.get("PGQUEUE_MODEL_EXAMPLES", "100" if LONG_EXAMPLES else "12"))
"""For each seed."""
STEPS = int(os.environ.get("PGQUEUE_MODEL_STEPS", "70" if LONG_EXAMPLES else "50"))
SHRINK = os.environ.get("PGQUEUE_MODEL_SHRINK") != "0"
SEED = int(os.environ.get("PGQUEUE_MODEL_SEED", "1"))


def settings_for(examples: int, steps: int, *, shrink: bool = True) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        verbosity=Verbosity.normal,
    )


def run(connect: Connect, settings: settings, number: int, counted: Figures, patience: str) -> None:
    class Seeded(Machine):
        figures = counted
        sessions = tuple(connect() for _ in range(SESSIONS))
        observer = connect()

    Seeded.patience = patience
    machine: Any = seed(number)(Seeded)
    run_state_machine_as_test(machine, settings=settings)


@pytest.mark.timeout(600 + 30 * (EXAMPLES + LONG_EXAMPLES))
def test_the_functions_agree_with_the_reference_model(connect: Connect) -> None:
    figures = Figures()
    for number in range(SEED, SEED + 1 + LONG_EXAMPLES):
        # Long, for a machine that stands still for a while is no failure.
        run(connect, settings_for(EXAMPLES, STEPS, shrink=SHRINK), number, figures, "10min")
        print(f"\nseeds {SEED} to {number}: {figures}", flush=True)
        if figures.long_examples >= LONG_EXAMPLES:
            break
    assert figures.long_examples >= LONG_EXAMPLES
    assert figures.steps > EXAMPLES


QUICK = (
    "the newest first", "anybody suspends", "nobody looks again for an event",
    "children are enqueued again",
)  # fmt: skip
"""Some that are found by one of the first ten examples.  All of them: PGQUEUE_MODEL_MUTATIONS=all."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS if os.environ.get("PGQUEUE_MODEL_MUTATIONS") == "all" else QUICK)
def test_sql_that_is_broken_on_purpose_is_found(connect: Connect, name: str) -> None:
    with broken(connect(), MUTATIONS[name]):
        is_found(connect, name)


@pytest.mark.skipif(os.environ.get("PGQUEUE_MODEL_MUTATIONS") != "all", reason="one of the slower ones")
def test_a_unique_key_that_is_held_too_long_is_found(connect: Connect) -> None:
    with broken_key(connect()):
        is_found(connect, "the unique index without its predicate")


def is_found(connect: Connect, name: str) -> None:
    began = time.monotonic()
    figures = Figures()
    with pytest.raises(Exception) as found:  # noqa: PT011 -- whatever comes of it
        run(connect, settings_for(400, 60, shrink=False), SEED, figures, "45s")
    said = str(found.value).splitlines()[0]
    print(f"\n{name}: found by example {figures.examples} after {time.monotonic() - began:.1f} s: {said[:120]}")
    assert "Flaky" not in type(found.value).__name__
