"""What ``sleepers`` and ``room`` have in common: transactions that enqueue a message each, and notify one or nobody.

A transaction that has read what workers said, and was still open when one of them said something else, is ``late``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.proofs.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator


class Enqueue(NamedTuple):
    stage: str = "new"  # new, written, ready, taken, rolled back
    target: int | None = None
    late: bool = False


class State(NamedTuple):
    workers: tuple[Any, ...]
    """As the protocol has them; with a ``stage``, and ``notified``."""
    enqueues: tuple[Enqueue, ...]


class Waking:
    """The steps of the transactions; a protocol adds those of its workers, and whom they wake."""

    notifies_at_once = False
    """Only where it is broken: a notification does not wait for the commit."""

    def __init__(self, broken: str, messages: int) -> None:
        self.broken = broken
        self.messages = messages

    def first(self) -> State:
        return State(self.workers(), (Enqueue(),) * self.messages)

    def wrong(self, _: State) -> str | None:
        return None

    def left(self, state: State) -> str | None:
        asleep = any(worker.stage == "asleep" for worker in state.workers)
        lying = any(enqueue.stage == "ready" and not enqueue.late for enqueue in state.enqueues)
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
                if self.notifies_at_once:
                    written = notify(written, target)
                yield f"perhaps transaction {number} writes, for {name}", written
        elif enqueue.stage == "written":
            ready = at_enqueue(state, number, Enqueue("ready", late=enqueue.late))
            if not self.notifies_at_once:
                ready = notify(ready, enqueue.target)
            yield f"perhaps transaction {number} commits", ready
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
            yield notify(state, target)


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


def told(state: State, number: int, worker: Any) -> State:
    """What a worker says of itself is committed: who has read before has read something else."""
    late = tuple(e._replace(late=True) if e.stage == "written" else e for e in state.enqueues)
    return at_worker(state._replace(enqueues=late), number, worker)


def notify(state: State, target: int | None) -> State:
    return state if target is None else at_worker(state, target, state.workers[target]._replace(notified=True))
