"""Who is awake and has room: nobody else is woken then, and no committed message is left lying for that.

Two workers, one with two slots and one with a single one, and transactions that enqueue a message each.  Falling asleep
by itself is the matter of ``sleepers.py``.  What stands for what:

====================  =============================================================================================
looks                 Claimer._look,  as often as it likes while slots are free; full: it took as many as it could
says so               Availability._tell_of_room: pgqueue_worker_seen(p_has_room), committed; perhaps long after it has
                      room, and by one that was woken perhaps while it has none: its jobs may be short
full                  Availability.full: what was said is taken back, committed, unless there is room again by
                      then; then the next is woken
polls                 Availability.looked: a sleeper that found something sleeps on where others have room, or where it
                      is not full and there is little to do (Polling.stays_asleep)
falls asleep          Availability._is_not_needed: as others have room
stops                 Availability.be_seen_if_due, and nothing is looked for any more; then the next is woken
writes                pgqueue_message_create: the row, and pgqueue_worker_wake, which wakes nobody where somebody has
                      said that he has room
====================  =============================================================================================

Sleepers ask for open transactions as in ``sleepers.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.waking import State, Waking, at_worker, ready_enqueues, still_open, take

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "who is full goes on saying that he has room": "keeps it when full",
    "who is full takes it back and wakes nobody": "wakes nobody",
    "who is full wakes the next before he takes it back": "wakes first",
    "who falls asleep goes on saying that he has room": "keeps it asleep",
    "who sleeps and is full sleeps on": "sleeps on when full",
    "who was called by another and sleeps on does not ask": "sleeps on and does not ask",
    "who stops goes on saying that he has room": "keeps it when stopping",
    "who stops takes it back and wakes nobody": "stops in silence",
}

SLOTS = (2, 1)


class Worker(NamedTuple):
    stage: str = "awake"  # awake, full, telling, poll, asked, asleep, called, woken, stopping, stopped
    says: str = "nothing"  # nothing, room, asleep
    room_too: bool = False  # only where it is broken: asleep, and still said to have room
    notified: bool = False
    running: int = 0
    writing: frozenset[int] | None = frozenset()
    """As in ``sleepers.py``."""
    asks: bool = False


class Room(Waking):
    def __init__(self, variant: str = "true", *, messages: int = 3) -> None:
        super().__init__(VARIANTS[variant], messages)

    def workers(self) -> tuple[Worker, ...]:
        return (Worker(),) * len(SLOTS)

    def targets(self, state: State) -> list[int | None]:
        if any(worker.says == "room" or worker.room_too for worker in state.workers):
            return [None]
        return [number for number, worker in enumerate(state.workers) if worker.says == "asleep"] or [None]

    def wrong(self, state: State) -> str | None:
        busy = any(worker.running > slots for worker, slots in zip(state.workers, SLOTS, strict=True))
        return "more runs than there are slots" if busy else None

    def work(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.running:
            done = worker._replace(running=worker.running - 1)
            yield f"perhaps worker {number} has done one", at_worker(state, number, done)
        match worker.stage:
            case "awake":
                yield from self._awake(state, number, worker)
            case "full":
                yield from self._full(state, number, worker)
            case "stopping":
                yield from self._stop(state, number, worker)
            case "telling" | "silent":
                for after in self.woken_next(state):
                    stage = "awake" if worker.stage == "telling" else "stopped"
                    yield f"worker {number} wakes the next", _at(after, number, stage)
            case _:
                yield from self._asleep(state, number, worker)

    def _asleep(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        match worker.stage:
            case "poll" if worker.notified:
                yield f"worker {number} is woken", _at(state, number, "called")
            case "poll":
                asked = worker._replace(stage="asked", notified=False, writing=still_open(state, worker.writing))
                yield f"worker {number} asks", at_worker(state, number, asked)
            case "asked" | "called":
                asks = worker.asks and self.broken != "sleeps on and does not ask"
                asks = worker.stage == "called" and (asks or worker.writing is None)
                after = worker._replace(asks=False, writing=None) if asks else worker
                nothing = "poll" if asks else "asleep"
                yield from self._look(state, number, worker, found="woken", full="woken full", nothing="")
                yield from self._look(state, number, after, found=nothing, full="", nothing=nothing)
            case "asleep" if worker.running >= SLOTS[number] and self.broken != "sleeps on when full":
                full = worker._replace(stage="telling", says="nothing", room_too=False)
                yield f"worker {number} signs off, because it is full", at_worker(state, number, full)
            case "asleep":
                yield from self._sleep(state, number, worker)
            case "woken":
                room = worker._replace(stage="awake", says="room", room_too=False)
                yield f"worker {number} signs off, and has room", at_worker(state, number, room)
            case "woken full":
                full = worker._replace(stage="telling", says="nothing", room_too=False)
                yield f"worker {number} signs off, and is full", at_worker(state, number, full)
                hopes = worker._replace(stage="full", says="room", room_too=False)
                yield f"worker {number} signs off, and hopes for room", at_worker(state, number, hopes)

    def _sleep(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.notified:
            yield f"worker {number} is woken", _at(state, number, "called")
        elif worker.writing and still_open(state, worker.writing) != worker.writing:
            yield f"worker {number} polls", _at(state, number, "poll")
        if _others_have_room(state, number):
            for step, after in self._look(state, number, worker, found="asleep", full="asleep", nothing="asleep"):
                sleeps_on = after.workers[number]._replace(writing=frozenset())
                yield f"perhaps {step}, and sleeps on", at_worker(after, number, sleeps_on)
        yield f"perhaps worker {number} stops", _at(state, number, "stopping")

    def _awake(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.running < SLOTS[number]:
            yield from self._look(state, number, worker, found="awake", full="full", nothing="awake")
            if worker.says != "room":
                yield (
                    f"perhaps worker {number} says that it has room",
                    at_worker(state, number, worker._replace(says="room")),
                )
            if not ready_enqueues(state) or _others_have_room(state, number):
                asleep = worker._replace(
                    stage="poll",
                    says="asleep",
                    room_too=self.broken == "keeps it asleep" and worker.says == "room",
                    writing=None,
                )
                yield f"perhaps worker {number} falls asleep", at_worker(state, number, asleep)
        yield f"perhaps worker {number} stops", _at(state, number, "stopping")

    def _full(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.running < SLOTS[number]:
            yield f"worker {number} has room again", _at(state, number, "awake")
        silent = worker._replace(stage="telling", says="nothing")
        if worker.says != "room" or self.broken == "keeps it when full":
            yield f"worker {number} is full", _at(state, number, "awake")
        elif self.broken == "wakes nobody":
            yield f"worker {number} is full and says so", at_worker(state, number, silent._replace(stage="awake"))
        elif self.broken == "wakes first":
            for after in self.woken_next(state):
                yield (
                    f"worker {number} wakes the next, and says that it is full",
                    at_worker(after, number, silent._replace(stage="awake")),
                )
        else:
            yield f"worker {number} is full and says so", at_worker(state, number, silent)

    def _stop(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.says == "nothing" or self.broken == "keeps it when stopping":
            yield f"worker {number} has stopped", _at(state, number, "stopped")
            return
        stage = "stopped" if self.broken == "stops in silence" else "silent"
        yield (
            f"worker {number} says that it stops",
            at_worker(state, number, worker._replace(stage=stage, says="nothing")),
        )

    def _look(
        self, state: State, number: int, worker: Worker, *, found: str, full: str, nothing: str
    ) -> Iterator[tuple[str, State]]:
        room = SLOTS[number] - worker.running
        taken = ready_enqueues(state)[:room]
        notified = worker.notified and worker.stage == "asked"  # what is heard since it asked is for the next look
        if not (full if len(taken) >= room > 0 else found if taken else nothing):
            return
        if not taken:
            if worker.stage != nothing:
                after = worker._replace(stage=nothing, notified=notified)
                yield f"worker {number} looks: nothing", at_worker(state, number, after)
            return
        after = worker._replace(
            stage=full if len(taken) >= room else found, notified=notified, running=worker.running + len(taken)
        )
        yield f"worker {number} looks: messages {taken}", at_worker(take(state, taken), number, after)


def _at(state: State, number: int, stage: str) -> State:
    return at_worker(state, number, state.workers[number]._replace(stage=stage))


def _others_have_room(state: State, number: int) -> bool:
    return any(worker.says == "room" for other, worker in enumerate(state.workers) if other != number)
