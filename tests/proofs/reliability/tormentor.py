"""Does the faults that a seed stands for, in lanes: what is in different lanes happens at the same time."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import DatabaseError, InterfaceError, connection

from tests.proofs.reliability.faults import FAULTS, Fault, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.proofs.reliability.storm import Storm

LANES = {"processes": 0.4, "database": 0.6}
"""The share of the faults that each lane does."""


class Tormentor:
    def __init__(self, storm: Storm, *, seed: int, count: int, only: Sequence[str] = ()) -> None:
        self.storm = storm
        self.seed = seed
        self.done: list[dict[str, Any]] = []
        self.doing = ""
        self.lulled = False
        self.busy = 0
        """How many faults there are just now."""
        self._guard = threading.Lock()
        self._threads = [
            threading.Thread(target=self._torment, args=[lane, plan], name=f"tormentor-{lane}", daemon=True)
            for lane, plan in plans(seed, count, short=storm.short, only=only).items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self, seconds: float | None = None) -> bool:
        """Whether all is done; with a time, it waits no longer."""
        deadline = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @contextlib.contextmanager
    def lull(self) -> Iterator[None]:
        """Without a fault, once those are over that have begun."""
        self.lulled = True
        try:
            while self.busy:
                time.sleep(0.02)
            yield
        finally:
            self.lulled = False

    def _torment(self, lane: str, plan: list[Fault]) -> None:
        chooser = random.Random(f"{self.seed} {lane}")
        for fault in plan:
            time.sleep(chooser.uniform(0, 0.4))
            while not self._may_begin():
                time.sleep(0.02)
            self.doing = fault.name
            self.done.append(self._do(fault, random.Random(chooser.random())))
            self.storm.pace.fault_is_over()
            with self._guard:
                self.busy -= 1
        connection.close()

    def _may_begin(self) -> bool:
        with self._guard:
            may = not self.lulled and self.storm.pace.may_torment()
            self.busy += may
            return may

    def _do(self, fault: Fault, chooser: random.Random) -> dict[str, Any]:
        began = time.monotonic()
        facts: dict[str, Any] = {
            "fault": fault.name,
            "at": round(began - self.storm.began, 1),
            "began": time.time(),
            "stops everybody": fault.stops_everybody,
        }
        try:
            facts |= fault.do(self.storm, chooser) or {}
        except Skipped as skipped:
            facts["skipped"] = str(skipped)
        except (psycopg.Error, DatabaseError, InterfaceError) as error:  # another fault was in its way
            facts["ended with"] = f"{type(error).__name__}: {error}".splitlines()[0][:100]
        except Exception:  # noqa: BLE001 -- the storm goes on; the report shows it
            facts["broken"] = traceback.format_exc()
        facts["took"], facts["over"] = round(time.monotonic() - began, 2), time.time()
        return facts


def plans(seed: int, count: int, *, short: bool, only: Sequence[str] = ()) -> dict[str, list[Fault]]:
    """What each lane does, in order: every kind at least once where there is room, the rest by weight.  ``only``: names
    of faults, and there are no others.
    """
    found = {}
    asked = {FAULTS[name].lane for name in only} or set(LANES)
    whole = sum(LANES[lane] for lane in asked)
    for lane in (lane for lane in LANES if lane in asked):
        share = LANES[lane] / whole
        chooser = random.Random(f"{seed} plan {lane}")
        kinds = [fault for fault in FAULTS.values() if fault.lane == lane and (fault.short or not short)]
        if only:
            kinds = [fault for fault in kinds if fault.name in only]
        plan = kinds if len(kinds) <= count * share else chooser.sample(kinds, round(count * share))
        missing = round(count * share) - len(plan)
        plan = [*plan, *chooser.choices(kinds, [fault.weight for fault in kinds], k=max(0, missing))]
        chooser.shuffle(plan)
        found[lane] = plan
    return found
