"""Who is awake and has room: nobody else is woken then, and no committed message is left lying for that.

Two workers, one with two slots and one with a single one, and transactions that enqueue a message each.  Falling asleep
by itself is the matter of ``sleepers.py``.  What stands for what:

====================  =============================================================================================
looks                 Consumer._look, as often as it likes while slots are free; full: it took as many as it could
says so               Consumer._tell_of_room: pgqueue_worker_seen(p_has_room), committed; perhaps long after it has room
full                  Consumer._tell_what_was_found: what was said is taken back, committed; then the next is woken
stops                 Consumer._be_seen_if_due, and nothing is looked for any more; then the next is woken
writes                pgqueue_message_create: the row, and pgqueue_worker_wake, which wakes nobody where somebody has
                      said that he has room
====================  =============================================================================================

As in ``sleepers.py`` a transaction that has read what workers said, and was still open when one of them said something
else, is ``late``: its message may wait for a poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "who is full goes on saying that he has room": "keeps it when full",
    "who is full takes it back and wakes nobody": "wakes nobody",
    "who is full wakes the next before he takes it back": "wakes first",
    "who falls asleep goes on saying that he has room": "keeps it asleep",
    "who stops goes on saying that he has room": "keeps it when stopping",
    "who stops takes it back and wakes nobody": "stops in silence",
}

SLOTS = (2, 1)


class Worker(NamedTuple):
    stage: str = "awake"  # awake, full, telling, second, asleep, woken, stopping, stopped
    says: str = "nothing"  # nothing, room, asleep
    room_too: bool = False  # only where it is broken: asleep, and still said to have room
    notified: bool = False
    running: int = 0


class Enqueue(NamedTuple):
    stage: str = "new"  # new, written, ready, taken, rolled back
    target: int | None = None
    late: bool = False


class State(NamedTuple):
    workers: tuple[Worker, ...]
    enqueues: tuple[Enqueue, ...]


class Room:
    def __init__(self, variant: str = "true", *, messages: int = 3) -> None:
        self.broken = VARIANTS[variant]
        self.messages = messages

    def first(self) -> State:
        return State((Worker(),) * len(SLOTS), (Enqueue(),) * self.messages)

    def wrong(self, state: State) -> str | None:
        busy = any(worker.running > slots for worker, slots in zip(state.workers, SLOTS, strict=True))
        return "more runs than there are slots" if busy else None

    def left(self, state: State) -> str | None:
        asleep = any(worker.stage == "asleep" for worker in state.workers)
        lying = any(enqueue.stage == "ready" and not enqueue.late for enqueue in state.enqueues)
        return "a message is ready, and who could run it sleeps" if asleep and lying else None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for number, enqueue in enumerate(state.enqueues):
            yield from self._enqueue(state, number, enqueue)
        for number, worker in enumerate(state.workers):
            yield from self._worker(state, number, worker)

    # Transactions that enqueue

    def _enqueue(self, state: State, number: int, enqueue: Enqueue) -> Iterator[tuple[str, State]]:
        if enqueue.stage == "new":
            for target in _targets(state):
                name = "nobody" if target is None else f"worker {target}"
                written = replaced(state.enqueues, number, Enqueue("written", target))
                yield f"perhaps transaction {number} writes, for {name}", state._replace(enqueues=written)
        elif enqueue.stage == "written":
            ready = replaced(state.enqueues, number, Enqueue("ready", late=enqueue.late))
            yield f"perhaps transaction {number} commits", _notify(state._replace(enqueues=ready), enqueue.target)
            back = replaced(state.enqueues, number, Enqueue("rolled back"))
            yield f"perhaps transaction {number} is rolled back", state._replace(enqueues=back)

    # Workers

    def _worker(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.running:
            done = worker._replace(running=worker.running - 1)
            yield f"perhaps worker {number} has done one", _with(state, number, done)
        match worker.stage:
            case "awake":
                yield from self._awake(state, number, worker)
            case "full":
                yield from self._full(state, number, worker)
            case "stopping":
                yield from self._stop(state, number, worker)
            case "telling" | "silent":
                for after in _woken_next(state):
                    stage = "awake" if worker.stage == "telling" else "stopped"
                    yield f"worker {number} wakes the next", _at(after, number, stage)
            case _:
                yield from self._asleep(state, number, worker)

    def _asleep(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        match worker.stage:
            case "second":
                yield from self._look(state, number, worker, found="woken", full="woken full", nothing="asleep")
            case "asleep" if worker.notified:
                yield f"worker {number} is woken", _at(state, number, "second")
            case "woken":
                room = worker._replace(stage="awake", says="room", room_too=False)
                yield f"worker {number} signs off, and has room", _said(state, number, room)
            case "woken full":
                full = worker._replace(stage="telling", says="nothing", room_too=False)
                yield f"worker {number} signs off, and is full", _said(state, number, full)

    def _awake(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.running < SLOTS[number]:
            yield from self._look(state, number, worker, found="awake", full="full", nothing="awake")
            if worker.says != "room":
                yield (
                    f"perhaps worker {number} says that it has room",
                    _said(state, number, worker._replace(says="room")),
                )
            if not _ready(state):
                asleep = worker._replace(
                    stage="second", says="asleep", room_too=self.broken == "keeps it asleep" and worker.says == "room"
                )
                yield f"perhaps worker {number} falls asleep", _said(state, number, asleep)
        yield f"perhaps worker {number} stops", _at(state, number, "stopping")

    def _full(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        silent = worker._replace(stage="telling", says="nothing")
        if worker.says != "room" or self.broken == "keeps it when full":
            yield f"worker {number} is full", _at(state, number, "awake")
        elif self.broken == "wakes nobody":
            yield f"worker {number} is full and says so", _said(state, number, silent._replace(stage="awake"))
        elif self.broken == "wakes first":
            for after in _woken_next(state):
                yield (
                    f"worker {number} wakes the next, and says that it is full",
                    _said(after, number, silent._replace(stage="awake")),
                )
        else:
            yield f"worker {number} is full and says so", _said(state, number, silent)

    def _stop(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.says != "room" or self.broken == "keeps it when stopping":
            yield f"worker {number} has stopped", _at(state, number, "stopped")
            return
        stage = "stopped" if self.broken == "stops in silence" else "silent"
        yield f"worker {number} says that it stops", _said(state, number, worker._replace(stage=stage, says="nothing"))

    def _look(
        self, state: State, number: int, worker: Worker, *, found: str, full: str, nothing: str
    ) -> Iterator[tuple[str, State]]:
        room, ready = SLOTS[number] - worker.running, _ready(state)
        taken = ready[:room]
        if not taken:
            if worker.stage != nothing:
                after = worker._replace(stage=nothing, notified=False)
                yield f"worker {number} looks: nothing", _with(state, number, after)
            return
        enqueues = state.enqueues
        for place in taken:
            enqueues = replaced(enqueues, place, Enqueue("taken"))
        after = worker._replace(
            stage=full if len(taken) >= room else found, notified=False, running=worker.running + len(taken)
        )
        yield f"worker {number} looks: messages {taken}", _with(state._replace(enqueues=enqueues), number, after)


def _ready(state: State) -> list[int]:
    return [place for place, enqueue in enumerate(state.enqueues) if enqueue.stage == "ready"]


def _targets(state: State) -> list[int | None]:
    """Whom pgqueue_worker_wake would notify."""
    if any(worker.says == "room" or worker.room_too for worker in state.workers):
        return [None]
    return [number for number, worker in enumerate(state.workers) if worker.says == "asleep"] or [None]


def _woken_next(state: State) -> Iterator[State]:
    for target in _targets(state):
        yield _notify(state, target)


def _notify(state: State, target: int | None) -> State:
    return state if target is None else _with(state, target, state.workers[target]._replace(notified=True))


def _at(state: State, number: int, stage: str) -> State:
    return _with(state, number, state.workers[number]._replace(stage=stage))


def _said(state: State, number: int, worker: Worker) -> State:
    """Committed: who has read what workers say before has read something else."""
    late = tuple(e._replace(late=True) if e.stage == "written" else e for e in state.enqueues)
    return _with(state._replace(enqueues=late), number, worker)


def _with(state: State, number: int, worker: Worker) -> State:
    return state._replace(workers=replaced(state.workers, number, worker))
