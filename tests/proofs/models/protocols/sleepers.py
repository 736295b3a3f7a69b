"""Falling asleep, enqueueing, waking: no committed message is left lying while somebody sleeps who could run it.

Workers with one slot each, and transactions that enqueue one message each.  What stands for what:

====================  =============================================================================================
looks                 Claimer._look: pgqueue_message_dequeue sees what has been committed when it begins
falls asleep          Availability._fall_asleep: pgqueue_worker_seen(p_asleep_ms), committed; then one more look
waits                 Loop._wait: until a notification, which is kept in Polling.next_look, or has come by then
wakes up              Availability._wake_up: pgqueue_worker_seen(null), committed; then, if it was full, the next one
                      is woken (pgqueue_worker_wake)
writes                pgqueue_message_create: the row, and pgqueue_worker_wake, which reads the sleepers and leaves a
                      notification for one of them
commits               the message is there, and the notification is delivered
====================  =============================================================================================

Workers also look about once a second without being woken (Polling.POLL_SECONDS).  That is left out here: whatever is
found at the first look is no trouble then, and the question is what a notification can do.  It cannot do everything: a
transaction that read the sleepers, and then stayed open while one of them signed on or off, notified the wrong one, or
nobody.  Its message is ``late``, and waits for a look, a second at most.  Nothing else may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.waking import State, Waking, at_worker, ready_enqueues, take, told

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


class Sleepers(Waking):
    def __init__(self, variant: str = "true", *, messages: int = 2) -> None:
        super().__init__(VARIANTS[variant], messages)
        self.notifies_at_once = self.broken == "notifies at once"

    def workers(self) -> tuple[Worker, ...]:
        return (Worker(),) * WORKERS

    def targets(self, state: State) -> list[int | None]:
        """Any of the sleepers may be the one that pgqueue_worker_wake finds."""
        found: list[int | None] = [
            number
            for number, worker in enumerate(state.workers)
            if worker.registered and not (self.broken == "skips the notified" and worker.notified)
        ]
        return found or [None]

    def work(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
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
                yield f"perhaps worker {number} has done it", at_worker(state, number, Worker("awake"))

    def _fall_asleep(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if self.broken == "looks before it is seen" and worker.stage == "drowsy":
            yield from self._look(state, number, found="busy", nothing="seen late")
            return
        skips = self.broken in {"no second look", "looks before it is seen"}
        after = Worker("settling" if skips else "second", registered=True, notified=worker.notified)
        yield f"worker {number} falls asleep", told(state, number, after)

    def _wait(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.stage == "settling":
            heard = worker.notified and self.broken != "forgets"
            yield f"worker {number} waits", at_worker(state, number, worker._replace(stage="asleep", notified=heard))
        elif worker.notified:
            yield f"worker {number} is woken", at_worker(state, number, worker._replace(stage="second"))

    def _wake_up(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if self.broken == "wakes first":
            for after in self.woken_next(state):
                yield f"worker {number} wakes the next and signs off", told(after, number, Worker("busy"))
        elif worker.stage == "woken":
            yield f"worker {number} signs off", told(state, number, Worker("signed off"))
        else:
            for after in self.woken_next(state):
                yield f"worker {number} wakes the next", at_worker(after, number, Worker("busy"))

    def woken_next(self, state: State) -> Iterator[State]:
        return iter([state]) if self.broken == "wakes nobody" else super().woken_next(state)

    def _look(self, state: State, number: int, *, found: str, nothing: str) -> Iterator[tuple[str, State]]:
        worker = state.workers[number]._replace(notified=False)
        ready = ready_enqueues(state)
        if not ready:
            yield f"worker {number} looks: nothing", at_worker(state, number, worker._replace(stage=nothing))
            return
        taken = take(state, ready[:1])
        yield f"worker {number} looks: message {ready[0]}", at_worker(taken, number, worker._replace(stage=found))
