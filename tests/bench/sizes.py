"""How large the workloads are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """By default a few minutes in all; FULL is what the published figures are made of, and takes hours."""

    jobs: int = 50_000
    bulk: int = 50_000
    ahead: int = 200_000
    unknown: int = 100_000
    links: int = 10_000
    dependants: int = 100_000
    history: int = 200_000
    held: int = 200_000
    segment: int = 50_000
    burst: int = 100_000
    edited: int = 145_000
    beside_edit: int = 200_000
    pick_ups: int = 300
    sleeping_pick_ups: int = 15
    wake_ups: int = 100
    seconds: float = 15.0
    enqueue_seconds: float = 2.0
    clients: tuple[int, ...] = (1, 8)
    sleepers: tuple[int, ...] = (1,)
    processes: tuple[int, ...] = (1, 2, 4)
    rates: tuple[int, ...] = (20, 400, 1300)
    peer_jobs: int = 10_000
    peer_ahead: int = 100_000
    workflows: int = 3_000

    @classmethod
    def chosen(cls, options: argparse.Namespace) -> Sizes:
        start = FULL if options.full else cls()
        given: dict[str, Any] = {
            field.name: value for field in fields(cls) if (value := getattr(options, field.name)) is not None
        }
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        return replace(start, **given)

    def said(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


FULL = Sizes(
    jobs=250_000,
    ahead=10_000_000,
    history=10_000_000,
    held=500_000,
    burst=300_000,
    pick_ups=1_000,
    sleeping_pick_ups=1_000,
    wake_ups=1_000,
    seconds=600.0,
    enqueue_seconds=10.0,
    bulk=1_000_000,
    clients=(1, 8, 32),
    sleepers=(1, 32),
    processes=(1, 2, 4, 16),
    peer_jobs=20_000,
    peer_ahead=1_000_000,
)

HELP = {
    "jobs": "jobs of each drain",
    "bulk": "messages of a bulk enqueue",
    "ahead": "scheduled messages before a drain",
    "unknown": "messages before a drain whose tasks no worker knows",
    "links": "jobs of a chain",
    "dependants": "messages that wait beside another chain",
    "history": "finished attempts in the history during a drain",
    "held": "jobs that are drained while a snapshot is held",
    "segment": "jobs of each part of that drain",
    "burst": "jobs of the first burst on tables that were never analysed",
    "edited": "messages that an edit cancels",
    "beside_edit": "jobs of 5 ms that wait meanwhile",
    "pick_ups": "single jobs whose pick-up is timed",
    "sleeping_pick_ups": "the same on a worker that sleeps (1.5 s each)",
    "wake_ups": "events whose wake-up is timed (0.2 s each)",
    "seconds": "seconds of mixed load, of each steady flow, and of idling",
    "enqueue_seconds": "seconds of enqueueing one by one, for each number of clients",
    "clients": "numbers of clients that enqueue",
    "sleepers": "numbers of sleeping workers meanwhile (0: none)",
    "processes": "numbers of worker processes",
    "rates": "jobs a second of a steady flow",
    "peer_jobs": "jobs of a peer's drain",
    "peer_ahead": "scheduled messages before a peer's drain",
    "workflows": "workflows of three steps",
}


def add_arguments(parser: argparse._ActionsContainer) -> None:
    for field in fields(Sizes):
        kind = type(field.default)
        many: dict[str, Any] = {"nargs": "+", "type": int} if kind is tuple else {"type": kind}
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            metavar="N",
            help=f"{HELP[field.name]} (default: {said(field.default)}, with --full: {said(getattr(FULL, field.name))})",
            **many,
        )


def said(value: Any) -> str:
    return (
        " ".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:,}"
        if isinstance(value, int)
        else f"{value:g}"
    )
