"""What ``sleepers`` and ``room`` have in common: transactions that enqueue a message each, and notify one or nobody.

A transaction may have read what workers said, and stay open while they say something else: it has notified the wrong
one, or nobody.  So a sleeper asks for the transactions that are open when it falls asleep, and looks when one has
ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.proofs.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator


class Enqueue(NamedTuple):
    stage: str = "new"  # new, written, ready, taken, rolled back
    target: int | None = None


class State(NamedTuple):
    workers: tuple[Any, ...]
    """As the protocol has them; with a ``stage``, ``notified``, and ``asks``: another worker has called."""
    enqueues: tuple[Enqueue, ...]


class Waking:
    """The steps of the transactions; a protocol adds those of its workers, and whom they wake."""

    def __init__(self, broken: str, messages: int) -> None:
        self.broken = broken
        self.messages = messages

    def first(self) -> State:
        return State(self.workers(), (Enqueue(),) * self.messages)

    def wrong(self, _: State) -> str | None:
        return None

    def left(self, state: State) -> str | None:
        asleep = any(worker.stage == "asleep" for worker in state.workers)
        lying = any(enqueue.stage == "ready" for enqueue in state.enqueues)
        return "a message is ready, and who could run it sleeps" if asleep and lying else None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for number, enqueue in enumerate(state.enqueues):
            yield from self._transact(state, number, enqueue)
        for number, worker in enumerate(state.workers):
            yield from self.work(state, number, worker)

    def _transact(self, state: State, number: int, enqueue: Enqueue) -> Iterator[tuple[str, State]]:
        if enqueue.stage == "new":
            for target in self.targets(state):
                name = "nobody" if target is None else f"worker {target}"
                written = at_enqueue(state, number, Enqueue("written", target))
                yield f"perhaps transaction {number} writes, for {name}", written
        elif enqueue.stage == "written":
            ready = at_enqueue(state, number, Enqueue("ready"))
            yield f"perhaps transaction {number} commits", notify(ready, enqueue.target)
            yield f"perhaps transaction {number} is rolled back", at_enqueue(state, number, Enqueue("rolled back"))

    def workers(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def targets(self, state: State) -> list[int | None]:
        """Whom pgqueue_worker_wake may find; None is nobody."""
        raise NotImplementedError

    def work(self, state: State, number: int, worker: Any) -> Iterator[tuple[str, State]]:
        raise NotImplementedError

    def woken_next(self, state: State) -> Iterator[State]:
        for target in self.targets(state):
            yield notify(state, target, by_another=True)


def ready_enqueues(state: State) -> list[int]:
    return [place for place, enqueue in enumerate(state.enqueues) if enqueue.stage == "ready"]


def take(state: State, places: list[int]) -> State:
    for place in places:
        state = at_enqueue(state, place, Enqueue("taken"))
    return state


def at_enqueue(state: State, number: int, enqueue: Enqueue) -> State:
    return state._replace(enqueues=replaced(state.enqueues, number, enqueue))


def at_worker(state: State, number: int, worker: Any) -> State:
    return state._replace(workers=replaced(state.workers, number, worker))


def still_open(state: State, before: frozenset[int] | None) -> frozenset[int]:
    """The transactions that are open; of those of ``before``, if a worker has asked before."""
    writing = frozenset(place for place, enqueue in enumerate(state.enqueues) if enqueue.stage == "written")
    return writing if before is None else before & writing


def notify(state: State, target: int | None, *, by_another: bool = False) -> State:
    if target is None:
        return state
    worker = state.workers[target]
    return at_worker(state, target, worker._replace(notified=True, asks=worker.asks or by_another))
