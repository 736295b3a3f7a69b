"""A durable task has its steps, children and waits while workers die, are late, and cancel: each effect once.

A task with one atomic step, which enqueues a child, and then a wait for an event with a time-out.  Two workers, one of
which may lose the message while it goes on.  What stands for what:

====================  =============================================================================================
claims                pgqueue_message_dequeue: the attempt counts up, and is the fence of everything that follows
reads the records     pgqueue_step_load, once in an attempt
works, commits        the atomic step with its child and its record (pgqueue_step_record, pgqueue_child_add): one
                      transaction, which locks the message for key share: a take-over waits for its end
suspends              pgqueue_message_suspend: fenced; max_attempts counts up, so that the attempt is not counted
expires               pgqueue_message_expire: the lock has run out, whether or not the worker lives
times out             dequeue_at has come: the suspended message is ready
====================  =============================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "a worker that has lost its message records steps": "no step fence",
    "a step that is recorded has its children again": "children again",
    "the child is enqueued in a transaction before the record's": "child apart",
    "a suspended attempt is counted": "counts suspended",
    "a wait takes no notice of its time-out": "no time-out",
    "each attempt waits for the whole time-out anew": "waits anew",
    "a worker that has lost its message suspends it": "no suspend fence",
}
MAX_ATTEMPTS = 1
"""Errors and deaths aside: losses are counted apart."""
LOSSES = 2


class Worker(NamedTuple):
    stage: str = "idle"  # idle, claimed, read, enqueued, worked, at the wait
    attempt: int = 0
    is_recorded: bool = False
    """What it has read: the step is done."""
    has_waited: bool = False
    """What it has read: the time-out counts from an earlier attempt, and is over."""


class State(NamedTuple):
    workers: tuple[Worker, ...] = (Worker(), Worker())
    holder: int | None = None
    attempt: int = 0
    most: int = MAX_ATTEMPTS
    losses: int = 0
    message: str = "ready"  # ready, held, suspended, succeeded, failed
    records: int = 0
    children: int = 0
    waits: bool = False
    """The wait has its record."""
    is_over: bool = False
    """The time-out has come."""


class Steps:
    def __init__(self, variant: str = "true") -> None:
        self.broken = VARIANTS[variant]

    def first(self) -> State:
        return State()

    def wrong(self, state: State) -> str | None:
        if state.children > 1:
            return "a child was enqueued twice"
        if state.records > 1:
            return "a step was recorded twice"
        if state.message == "failed":
            return "a task that only waits has used its attempts up"
        if state.attempt > LOSSES + 2:
            return "a task waits for its time-out again and again"
        return None

    def left(self, state: State) -> str | None:
        return None if state.message == "succeeded" else "the task waits, and its time-out has passed"

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.message == "held" and state.losses < LOSSES and not self._locks(state):
            lost = state._replace(message="ready", holder=None, losses=state.losses + 1, most=state.most + 1)
            yield "perhaps the lock runs out", lost
        if state.message == "suspended" and self.broken != "no time-out":
            yield "the time-out has come", state._replace(message="ready", is_over=True)
        for number, worker in enumerate(state.workers):
            yield from self._work(state, number, worker)
            if worker.stage != "idle" and (state.holder != number or state.losses < LOSSES):
                yield f"perhaps worker {number} dies", self._died(state, number)

    def _died(self, state: State, number: int) -> State:
        gone = _at(state, number, Worker())
        if state.holder != number:
            return gone
        return gone._replace(message="ready", holder=None, losses=state.losses + 1, most=state.most + 1)

    def _locks(self, state: State) -> bool:
        """Whether the holder's transaction has locked the message for key share."""
        return any(
            worker.stage == "worked" and number == state.holder for number, worker in enumerate(state.workers)
        ) and (self.broken != "no step fence")

    def _work(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        holds = state.holder == number and state.attempt == worker.attempt
        match worker.stage:
            case "idle" if state.message == "ready":
                if state.attempt >= state.most:
                    yield "the message fails", state._replace(message="failed")
                    return
                claimed = _at(state, number, Worker("claimed", state.attempt + 1))
                yield (
                    f"worker {number} claims",
                    claimed._replace(holder=number, attempt=state.attempt + 1, message="held"),
                )
            case "claimed":
                waited = state.waits and state.is_over and self.broken != "waits anew"
                read = worker._replace(stage="read", is_recorded=state.records > 0, has_waited=waited)
                yield f"worker {number} reads the records", _at(state, number, read)
            case "read" if worker.is_recorded:
                again = int(self.broken == "children again")
                passed = _at(state, number, worker._replace(stage="at the wait"))
                yield f"worker {number} reads the step", passed._replace(children=state.children + again)
            case "read" | "enqueued" | "worked":
                yield self._record(state, number, worker, holds=holds)
            case "at the wait":
                yield self._wait(state, number, worker, holds=holds)

    def _record(self, state: State, number: int, worker: Worker, *, holds: bool) -> tuple[str, State]:
        is_apart = self.broken == "child apart"
        if worker.stage == "worked":  # its death is its rollback
            done = _at(state, number, worker._replace(stage="at the wait"))
            done = done._replace(records=state.records + 1, children=state.children + int(not is_apart))
            return f"worker {number} commits the step", done
        if not holds and self.broken != "no step fence":
            return f"worker {number} is told of its loss", _at(state, number, Worker())
        if worker.stage == "read" and is_apart:
            apart = _at(state, number, worker._replace(stage="enqueued"))
            return f"worker {number} enqueues the child", apart._replace(children=state.children + 1)
        return f"worker {number} works", _at(state, number, worker._replace(stage="worked"))

    def _wait(self, state: State, number: int, worker: Worker, *, holds: bool) -> tuple[str, State]:
        left = _at(state, number, Worker())
        if not holds and self.broken != "no suspend fence":
            return f"worker {number} is told of its loss", left
        if worker.has_waited and holds:
            return f"worker {number} completes", left._replace(message="succeeded", holder=None)
        most = state.most + int(self.broken != "counts suspended")
        return (
            f"worker {number} suspends",
            left._replace(message="suspended", holder=None, waits=True, is_over=False, most=most),
        )


def _at(state: State, number: int, worker: Worker) -> State:
    return state._replace(workers=replaced(state.workers, number, worker))
