"""Tasks that misbehave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import transaction

from tests.proofs.reliability import tasks
from tests.proofs.reliability.faults.fault import fault

if TYPE_CHECKING:
    import random

    from tests.proofs.reliability.storm import Storm


def enqueue(storm: Storm, chooser: random.Random, *names: str) -> dict[str, Any]:
    name = chooser.choice(names)
    with storm.enqueuing() as remember, transaction.atomic():
        token = storm.new_token()
        remember(token, getattr(tasks, name).enqueue(token))
    return {"task": name}


@fault("handler leaks a transaction", "database")
def leak(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "leak")


@fault("handler closes its connection", "database")
def close(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "close", "pay_and_close")


@fault("handler ignores its time-out", "database", weight=0.5)
def hang(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "hang", "pay_and_hang")


@fault("backoff that does not return", "database", weight=0.5, short=False)
def hang_twice(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "hang_twice")


@fault("handler calls os._exit", "database", weight=0.5)
def leave(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "leave")


@fault("handler runs out of memory or stack", "database")
def eat(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "eat", "dig", "stop")


@fault("handler goes on after an error of the database", "database")
def spoil(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "spoil")


@fault("handler forks", "database")
def fork(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "fork", "pool")


@fault("handler raises what cannot be printed", "database")
def mumble(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "mumble")


@fault("async handler that cannot be cancelled", "database", weight=0.5)
def block(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "block", "cling")


@fault("handler leaves its session changed", "database")
def reset(storm: Storm, chooser: random.Random) -> dict[str, Any]:
    return enqueue(storm, chooser, "unsettle", "mute")
