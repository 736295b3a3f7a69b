"""A message that others wait for ends: each of them is released, and none is looked at while nothing happens.

One message that is waited for, transactions that each enqueue one that waits for it, one that ends it and may be rolled
back, and a worker that may die at any time.  What stands for what:

====================  =============================================================================================
enqueues              pgqueue_message_create_after: the row has awaited_id and a near check_at; where the other message
                      is not there any more, a row of pgqueue_ended comes with it
deletes               whatever ends a message; it waits for whoever has locked the row for a moment
notes                 the trigger pgqueue_message_ended: after that, and with a new snapshot, it looks who waits
looks                 pgqueue_message_look at somebody whose check_at is near: is the other message there?
locks, commits        for key share skip locked of its row; then check_at is null, and the transaction ends
takes, releases       pgqueue_message_settle: a row of pgqueue_ended, and who waits for that message
====================  =============================================================================================

In the end nobody waits for what is gone, unless somebody else has locked the row that waits, who will let it go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "a look that finds the other message does not lock it": "no lock",
    "who ends a message looks for those that wait before that": "notes first",
    "the check is not near after it was written": "never near",
    "an old snapshot says who waits": "old snapshot",
    "what was taken does not come back for those that were locked": "drops",
    "a worker that dies has taken it": "taken for good",
    "enqueued after the end, and nobody is told": "not told",
}


class Waiter(NamedTuple):
    stage: str = "new"  # new, written, waiting, ready
    near: bool = False
    tells: bool = False
    """The other one was not there when it was written: its transaction tells that too."""
    held: bool = False
    """Somebody has locked the row."""


class State(NamedTuple):
    waiters: tuple[Waiter, ...]
    other: str = "there"  # there, begun, deleted, noted, gone
    seen: bool | None = None
    """What its transaction knows: whether somebody waits."""
    rolled_back: bool = False
    told: bool = False
    worker: str = "idle"  # idle, looking, locked, taking, done
    about: int = -1


class Ends:
    def __init__(self, variant: str = "true", *, messages: int = 2) -> None:
        self.broken = VARIANTS[variant]
        self.messages = messages

    def first(self) -> State:
        return State((Waiter(),) * self.messages)

    def wrong(self, _: State) -> str | None:
        return None

    def left(self, state: State) -> str | None:
        waits = any(waiter.stage == "waiting" and not waiter.held for waiter in state.waiters)
        return "somebody waits for what is gone" if state.other == "gone" and waits else None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for number, waiter in enumerate(state.waiters):
            yield from self._enqueue(state, number, waiter)
        yield from self._end(state)
        yield from self._work(state)

    def _enqueue(self, state: State, number: int, waiter: Waiter) -> Iterator[tuple[str, State]]:
        if waiter.stage == "new":
            tells = state.other == "gone" and self.broken != "not told"
            near = self.broken not in {"never near", "not told"} or (
                self.broken == "not told" and state.other != "gone"
            )
            written = waiter._replace(stage="written", near=near, tells=tells)
            yield f"perhaps message {number} is written", _at(state, number, written)
        elif waiter.stage == "written":
            after = _at(state, number, waiter._replace(stage="waiting", tells=False))
            yield f"perhaps message {number} is committed", after._replace(told=state.told or waiter.tells)
        elif waiter.stage == "waiting" and not waiter.held and number == 0:
            yield "perhaps somebody locks message 0", _at(state, number, waiter._replace(held=True))
        if waiter.held:
            yield f"message {number} is let go", _at(state, number, waiter._replace(held=False))

    def _end(self, state: State) -> Iterator[tuple[str, State]]:
        waits = any(waiter.stage == "waiting" for waiter in state.waiters)
        match state.other:
            case "there":
                seen = waits if self.broken in {"notes first", "old snapshot"} else None
                yield "perhaps its transaction begins", state._replace(other="begun", seen=seen)
            case "begun" if state.worker != "locked":
                yield "it is deleted", state._replace(other="deleted")
            case "deleted":
                seen = waits if state.seen is None else state.seen
                yield "its end is noted", state._replace(other="noted", seen=seen)
            case "noted":
                yield "its end is committed", state._replace(other="gone", told=state.told or bool(state.seen))
                if not state.rolled_back:
                    back = state._replace(other="there", seen=None, rolled_back=True)
                    yield "its end is rolled back", back

    def _work(self, state: State) -> Iterator[tuple[str, State]]:
        there = state.other != "gone"
        if state.worker == "idle":
            for number, waiter in enumerate(state.waiters):
                if waiter.stage == "waiting" and waiter.near and not waiter.held:
                    name = f"the worker looks at message {number}"
                    if not there:
                        yield f"{name} and releases it", _release(state, number)
                    else:
                        yield f"perhaps {name}", state._replace(worker="looking", about=number)
            if state.told:
                yield "the worker takes what was told", state._replace(worker="taking")
        elif state.worker == "taking":
            yield from self._take(state)
        else:
            yield from self._look(state)

    def _look(self, state: State) -> Iterator[tuple[str, State]]:
        over = state._replace(worker="idle", about=-1)
        if state.worker == "looking":
            if self.broken == "no lock":
                yield "the worker locks nothing", state._replace(worker="done")
            elif state.other in {"there", "begun"}:
                yield "the worker locks the other one", state._replace(worker="locked")
            else:
                yield "the other one is locked: again later", over
            return
        waiter = state.waiters[state.about]
        cleared = _at(over, state.about, waiter._replace(near=False)) if waiter.stage == "waiting" else over
        yield "the worker commits", cleared
        yield "perhaps the worker dies", over

    def _take(self, state: State) -> Iterator[tuple[str, State]]:
        after = state._replace(worker="idle")
        if state.other != "gone":
            yield "it is there: nothing to do", after._replace(told=False)
            return
        waiting = [number for number, waiter in enumerate(state.waiters) if waiter.stage == "waiting"]
        kept = any(state.waiters[number].held for number in waiting) and self.broken != "drops"
        released = after._replace(told=kept)
        for number in waiting:
            if not state.waiters[number].held:
                released = _release(released, number)
        if not kept or released != after:  # else it is too early, and nothing happens before it is let go
            yield "the worker releases who waits", released
        else:
            yield "perhaps the worker finds all of them locked", after
        yield "perhaps the worker dies", after._replace(told=self.broken != "taken for good")


def _at(state: State, number: int, waiter: Waiter) -> State:
    return state._replace(waiters=replaced(state.waiters, number, waiter))


def _release(state: State, number: int) -> State:
    return _at(state, number, Waiter("ready"))
