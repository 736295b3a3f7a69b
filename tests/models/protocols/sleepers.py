"""Falling asleep, enqueueing, waking: no committed message is left lying while somebody sleeps who could run it.

Workers with one slot each, and transactions that enqueue one message each.  What stands for what:

====================  =============================================================================================
looks                 Consumer._claim: pgqueue_message_dequeue sees what has been committed when it begins
falls asleep          Consumer._fall_asleep: pgqueue_worker_seen(p_asleep_ms), committed; then one more look
waits                 Consumer._wait: until a notification, which is kept in Idleness.next_look, or has come by then
wakes up              Consumer._wake_up: pgqueue_worker_seen(null), committed; then, with a full batch, the next sleeper
                      is woken (pgqueue_worker_wake)
writes                pgqueue_message_create: the row, and pgqueue_worker_wake, which reads the sleepers and leaves a
                      notification for one of them
commits               the message is there, and the notification is delivered
====================  =============================================================================================

Workers also look about once a second without being woken (Idleness.POLL_SECONDS).  That is left out here: whatever is
found at the first look is no trouble then, and the question is what a notification can do.  It can not do everything: a
transaction that read the sleepers, and then stayed open while one of them signed on or off, notified the wrong one, or
nobody.  Its message is ``late``, and waits for a look, a second at most.  Nothing else may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "sleep without a second look": "no second look",
    "what is heard during a look is forgotten": "forgets",
    "the second look before the sleeper is there for others": "looks before it is seen",
    "a full batch does not wake the next sleeper": "wakes nobody",
    "the next sleeper is woken before signing off": "wakes first",
    "the notification does not wait for the commit": "notifies at once",
    "an enqueue that finds a sleeper notified passes on": "skips the notified",
}

WORKERS = 2


class Worker(NamedTuple):
    stage: str = "awake"  # awake, drowsy, second, settling, asleep, woken, signed off, busy
    registered: bool = False
    notified: bool = False


class Enqueue(NamedTuple):
    stage: str = "new"  # new, written, ready, taken, rolled back
    target: int | None = None
    late: bool = False


class State(NamedTuple):
    workers: tuple[Worker, ...]
    enqueues: tuple[Enqueue, ...]


class Sleepers:
    def __init__(self, variant: str = "true", *, messages: int = 2) -> None:
        self.broken = VARIANTS[variant]
        self.messages = messages

    def first(self) -> State:
        return State((Worker(),) * WORKERS, (Enqueue(),) * self.messages)

    def wrong(self, _: State) -> str | None:
        return None

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
            for target in self._sleepers(state):
                name = "nobody" if target is None else f"worker {target}"
                written = Enqueue("written", target)
                after = state._replace(enqueues=replaced(state.enqueues, number, written))
                if self.broken == "notifies at once":
                    after = _notify(after, target)
                yield f"perhaps transaction {number} writes, for {name}", after
        elif enqueue.stage == "written":
            ready = state._replace(enqueues=replaced(state.enqueues, number, Enqueue("ready", late=enqueue.late)))
            if self.broken != "notifies at once":
                ready = _notify(ready, enqueue.target)
            yield f"perhaps transaction {number} commits", ready
            back = state._replace(enqueues=replaced(state.enqueues, number, Enqueue("rolled back")))
            yield f"perhaps transaction {number} is rolled back", back

    def _sleepers(self, state: State) -> list[int | None]:
        """Any of them may be the one that pgqueue_worker_wake finds."""
        found: list[int | None] = [
            number
            for number, worker in enumerate(state.workers)
            if worker.registered and not (self.broken == "skips the notified" and worker.notified)
        ]
        return found or [None]

    # Workers

    def _worker(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        match worker.stage:
            case "awake":
                yield from self._look(state, number, found="busy", nothing="drowsy")
            case "drowsy" | "seen late":
                yield from self._fall_asleep(state, number, worker)
            case "second":
                yield from self._look(state, number, found="woken", nothing="settling")
            case "settling" | "asleep":
                yield from self._wait(state, number, worker)
            case "woken" | "signed off":
                yield from self._wake_up(state, number, worker)
            case "busy":
                yield f"perhaps worker {number} has done it", _with(state, number, Worker("awake"))

    def _fall_asleep(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if self.broken == "looks before it is seen" and worker.stage == "drowsy":
            yield from self._look(state, number, found="busy", nothing="seen late")
            return
        skips = self.broken in {"no second look", "looks before it is seen"}
        after = Worker("settling" if skips else "second", registered=True, notified=worker.notified)
        yield f"worker {number} falls asleep", _signed(state, number, after)

    def _wait(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.stage == "settling":
            heard = worker.notified and self.broken != "forgets"
            yield f"worker {number} waits", _with(state, number, worker._replace(stage="asleep", notified=heard))
        elif worker.notified:
            yield f"worker {number} is woken", _with(state, number, worker._replace(stage="second"))

    def _wake_up(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if self.broken == "wakes first":
            for after in self._woken_next(state):
                yield f"worker {number} wakes the next and signs off", _signed(after, number, Worker("busy"))
        elif worker.stage == "woken":
            yield f"worker {number} signs off", _signed(state, number, Worker("signed off"))
        else:
            for after in self._woken_next(state):
                yield f"worker {number} wakes the next", _with(after, number, Worker("busy"))

    def _woken_next(self, state: State) -> Iterator[State]:
        if self.broken == "wakes nobody":
            yield state
            return
        for target in self._sleepers(state):
            yield _notify(state, target)

    def _look(self, state: State, number: int, *, found: str, nothing: str) -> Iterator[tuple[str, State]]:
        worker = state.workers[number]._replace(notified=False)
        ready = [place for place, enqueue in enumerate(state.enqueues) if enqueue.stage == "ready"]
        if not ready:
            yield f"worker {number} looks: nothing", _with(state, number, worker._replace(stage=nothing))
            return
        taken = state._replace(enqueues=replaced(state.enqueues, ready[0], Enqueue("taken")))
        yield f"worker {number} looks: message {ready[0]}", _with(taken, number, worker._replace(stage=found))


def _with(state: State, number: int, worker: Worker) -> State:
    return state._replace(workers=replaced(state.workers, number, worker))


def _signed(state: State, number: int, worker: Worker) -> State:
    """Signed on or off, and committed: who has read the sleepers before has read something else."""
    late = tuple(e._replace(late=True) if e.stage == "written" else e for e in state.enqueues)
    return _with(state._replace(enqueues=late), number, worker)


def _notify(state: State, target: int | None) -> State:
    if target is None:
        return state
    return _with(state, target, state.workers[target]._replace(notified=True))
