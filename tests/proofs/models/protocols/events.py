"""An event is emitted while messages begin to wait for it: none of them waits for ever.

Two messages that begin to wait, a transaction that emits and may be rolled back, and a worker that may die at any time.
What stands for what:

====================  =============================================================================================
is written            pgqueue_message_suspend: awaited_event, and a row of pgqueue_ended with the event
emits                 pgqueue_event_put: the event, and such a row
commits               both become visible at once
takes                 pgqueue_message_settle: deletes the row of pgqueue_ended
looks                 pgqueue_event_arrive, in the same transaction and with a later snapshot: is the event
                      there, and who waits for it?
====================  =============================================================================================

The row of whoever begins to wait is the second look at the event: it happens after the commit, in a new snapshot.  The
row stays if the worker that made it dies before it looks.  In the end nobody waits for an event that was emitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "nobody looks at the event again after the commit of who waits": "no second look",
    "only the worker that suspends looks again, and nobody if it dies": "no check_at",
    "the emitter leaves no row, and looks for waiters itself": "no arrival",
    "the row is left before the commit, in a transaction of its own": "told early",
    "the snapshot of the look is older than what was taken": "old snapshot",
    "what was taken does not come back for those that were locked": "drops",
    "a worker that dies has taken it": "taken for good",
}


class Waiter(NamedTuple):
    stage: str = "new"  # new, written, waiting, looking, ready
    held: bool = False
    """Somebody has locked the row."""


class State(NamedTuple):
    waiters: tuple[Waiter, ...]
    event: str = "none"  # none, written, there
    rolled_back: bool = False
    seen: tuple[int, ...] = ()
    """Whom the emitter has seen waiting, where that decides."""
    told: bool = False
    worker: str = "idle"  # idle, taken, looked
    sees_event: bool = False
    sees: tuple[int, ...] = ()
    keeps: bool = False


class Events:
    def __init__(self, variant: str = "true", *, messages: int = 2) -> None:
        self.broken = VARIANTS[variant]
        self.messages = messages

    def first(self) -> State:
        return State((Waiter(),) * self.messages)

    def wrong(self, _: State) -> str | None:
        return None

    def left(self, state: State) -> str | None:
        waits = any(waiter.stage == "waiting" and not waiter.held for waiter in state.waiters)
        return "somebody waits for an event that was emitted" if state.event == "there" and waits else None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for number, waiter in enumerate(state.waiters):
            yield from self._wait(state, number, waiter)
        yield from self._emit(state)
        yield from self._work(state)

    def _wait(self, state: State, number: int, waiter: Waiter) -> Iterator[tuple[str, State]]:
        tells = self.broken not in {"no second look", "no check_at"}
        if waiter.stage == "new":
            written = _at(state, number, waiter._replace(stage="written"))
            yield (
                f"perhaps message {number} is written",
                written._replace(told=written.told or self.broken == "told early"),
            )
        elif waiter.stage == "written":
            stage = "looking" if self.broken == "no check_at" else "waiting"
            after = _at(state, number, waiter._replace(stage=stage))
            yield (
                f"message {number} commits",
                after._replace(told=after.told or (tells and self.broken != "told early")),
            )
        elif waiter.stage == "looking":
            stage = "ready" if state.event == "there" else "waiting"
            yield f"the worker of message {number} looks again", _at(state, number, waiter._replace(stage=stage))
            yield f"perhaps the worker of message {number} dies", _at(state, number, waiter._replace(stage="waiting"))
        elif waiter.stage == "waiting" and not waiter.held and number == 0:
            yield "perhaps somebody locks message 0", _at(state, number, waiter._replace(held=True))
        if waiter.held:
            yield f"message {number} is let go", _at(state, number, waiter._replace(held=False))

    def _emit(self, state: State) -> Iterator[tuple[str, State]]:
        if state.event == "none":
            seen = tuple(number for number, waiter in enumerate(state.waiters) if waiter.stage == "waiting")
            after = state._replace(event="written", seen=seen if self.broken == "no arrival" else ())
            yield "perhaps the event is emitted", after._replace(told=after.told or self.broken == "told early")
        elif state.event == "written":
            after = state._replace(event="there", told=state.told or self.broken not in {"no arrival", "told early"})
            for number in state.seen:
                after = _at(after, number, Waiter("ready"))
            yield "the emit commits", after._replace(seen=())
            if not state.rolled_back:
                yield "the emit is rolled back", state._replace(event="none", rolled_back=True, seen=())

    def _work(self, state: State) -> Iterator[tuple[str, State]]:
        idle = state._replace(worker="idle", sees_event=False, sees=(), keeps=False)
        match state.worker:
            case "idle" if state.told:
                taken = state._replace(worker="taken", told=False)
                yield "the worker takes what was told", taken
            case "idle" if self.broken == "old snapshot":
                yield "perhaps the worker's snapshot is taken", self._looked(state)._replace(worker="old")
            case "old":
                if state.told:
                    yield "the worker takes what was told later", state._replace(worker="looked", told=False)
                yield "the worker finds nothing to take", idle
            case "taken":
                yield "the worker looks", self._looked(state)
                yield "perhaps the worker dies", idle._replace(told=state.told or self.broken != "taken for good")
            case "looked":
                after = idle._replace(told=state.told or (state.keeps and self.broken != "drops"))
                for number in state.sees:
                    after = _at(after, number, Waiter("ready"))
                yield "the worker commits", after
                yield "perhaps the worker dies", idle._replace(told=state.told or self.broken != "taken for good")

    def _looked(self, state: State) -> State:
        waiting = [number for number, waiter in enumerate(state.waiters) if waiter.stage == "waiting"]
        if state.event != "there":
            return state._replace(worker="looked")
        free = tuple(number for number in waiting if not state.waiters[number].held)
        return state._replace(worker="looked", sees_event=True, sees=free, keeps=len(free) < len(waiting))


def _at(state: State, number: int, waiter: Waiter) -> State:
    return state._replace(waiters=replaced(state.waiters, number, waiter))
