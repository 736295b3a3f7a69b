"""Falling asleep, enqueueing, waking: no committed message is left lying while somebody sleeps who could run it.

Workers with one slot each, and transactions that enqueue one message each.  What stands for what:

====================  =============================================================================================
looks                 Claimer._look: pgqueue_message_dequeue sees what has been committed when it begins
asks                  functions.message_prospect, before the look of a poll: which transactions are open
falls asleep          Availability._fall_asleep: pgqueue_worker_seen(p_asleep_ms), committed; then one more look
wakes up              Availability._wake_up: pgqueue_worker_seen(null), committed; then, if it was full, the next one
                      is woken (pgqueue_worker_wake)
writes                pgqueue_message_create: the row, and pgqueue_worker_wake, which reads the sleepers and leaves a
                      notification for one of them
commits               the message is there, and the notification is delivered
waits                 Loop._wait: until a notification, which is kept in Polling.next_look, or has come by then
waits                 also Polling.asks_first: until one of the transactions has ended, and then it polls
is woken              Polling.slept_on: if another worker has called, and the look finds nothing, it polls at once
====================  =============================================================================================

Workers also look about once a second without being woken (Polling.POLL_SECONDS).  That is left out here: no message may
have to wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.waking import State, Waking, at_worker, ready_enqueues, still_open, take

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "sleep without a second look": "no second look",
    "what is heard during a look is forgotten": "forgets",
    "the second look before the sleeper is there for others": "looks before it is seen",
    "a full batch does not wake the next sleeper": "wakes nobody",
    "the next sleeper is woken before signing off": "wakes first",
    "a sleeper does not ask for open transactions": "does not ask",
    "a sleeper asks for open transactions after its look": "asks late",
    "a sleeper that another has woken in vain does not ask": "trusts the call",
    "a sleeper that was woken in vain forgets for whom it waits": "forgets the others",
}

WORKERS = 2


class Worker(NamedTuple):
    stage: str = "awake"  # awake, drowsy, poll, asked, settling, asleep, called, woken, signed off, busy
    registered: bool = False
    notified: bool = False
    writing: frozenset[int] | None = frozenset()
    """The transactions for which it asks.  None: at its next poll, for all that are open."""
    asks: bool = False
    """Another worker has called, which can take no more."""


class Sleepers(Waking):
    def __init__(self, variant: str = "true", *, messages: int = 2) -> None:
        super().__init__(VARIANTS[variant], messages)

    def workers(self) -> tuple[Worker, ...]:
        return (Worker(),) * WORKERS

    def targets(self, state: State) -> list[int | None]:
        """Any of the sleepers may be the one that pgqueue_worker_wake finds."""
        return [number for number, worker in enumerate(state.workers) if worker.registered] or [None]

    def work(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        match worker.stage:
            case "awake":
                yield from self._look(state, number, found="busy", nothing="drowsy")
            case "drowsy" | "seen late":
                yield from self._fall_asleep(state, number, worker)
            case "settling" | "asleep":
                yield from self._wait(state, number, worker)
            case "woken" | "signed off":
                yield from self._wake_up(state, number, worker)
            case "busy":
                yield f"perhaps worker {number} has done it", at_worker(state, number, Worker("awake"))
            case _:
                yield from self._poll(state, number, worker)

    def _poll(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        match worker.stage:
            case "poll" if worker.notified:
                yield from self._wait(state, number, worker)
            case "poll" if self.broken == "asks late":
                yield from self._look(state, number, found="woken", nothing="asks late")
            case "poll" | "asks late":
                stage = "asked" if worker.stage == "poll" else "settling"
                writing = frozenset[int]() if self.broken == "does not ask" else still_open(state, worker.writing)
                asked = worker._replace(stage=stage, notified=False, writing=writing)
                yield f"worker {number} asks", at_worker(state, number, asked)
            case "called" if worker.writing is None or (worker.asks and self.broken != "trusts the call"):
                yield from self._look(state, number, found="woken", nothing="poll")
            case "asked" | "called":
                yield from self._look(state, number, found="woken", nothing="settling")

    def _fall_asleep(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if self.broken == "looks before it is seen" and worker.stage == "drowsy":
            yield from self._look(state, number, found="busy", nothing="seen late")
            return
        skips = self.broken in {"no second look", "looks before it is seen"}
        after = Worker("settling" if skips else "poll", True, worker.notified, frozenset() if skips else None)
        yield f"worker {number} falls asleep", at_worker(state, number, after)

    def _wait(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.stage == "settling":
            heard = worker.notified and self.broken != "forgets"
            yield f"worker {number} waits", at_worker(state, number, worker._replace(stage="asleep", notified=heard))
        elif worker.notified:
            writing = frozenset[int]() if self.broken == "forgets the others" else worker.writing
            called = worker._replace(stage="called", writing=writing)
            yield f"worker {number} is woken", at_worker(state, number, called)
        elif worker.writing and still_open(state, worker.writing) != worker.writing:
            yield f"worker {number} polls", at_worker(state, number, worker._replace(stage="poll"))

    def _wake_up(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if self.broken == "wakes first":
            for after in self.woken_next(state):
                yield f"worker {number} wakes the next and signs off", at_worker(after, number, Worker("busy"))
        elif worker.stage == "woken":
            yield f"worker {number} signs off", at_worker(state, number, Worker("signed off"))
        else:
            for after in self.woken_next(state):
                yield f"worker {number} wakes the next", at_worker(after, number, Worker("busy"))

    def woken_next(self, state: State) -> Iterator[State]:
        return iter([state]) if self.broken == "wakes nobody" else super().woken_next(state)

    def _look(self, state: State, number: int, *, found: str, nothing: str) -> Iterator[tuple[str, State]]:
        worker = state.workers[number]
        # What is heard since it asked is for the next look.
        worker = worker._replace(notified=worker.notified and worker.stage == "asked")
        ready = ready_enqueues(state)
        if not ready and nothing == "poll":
            worker = worker._replace(asks=False, writing=None)
        if not ready:
            yield f"worker {number} looks: nothing", at_worker(state, number, worker._replace(stage=nothing))
            return
        taken = take(state, ready[:1])
        yield f"worker {number} looks: message {ready[0]}", at_worker(taken, number, worker._replace(stage=found))
