"""Floors: a claim that begins behind the last one misses what lies before it, and must not be the last word.

One worker whose claims are slow, so that it uses a floor, and messages that commit in any order.  What stands for what:

====================  =============================================================================================
writes, commits       pgqueue_message_create: the place, (dequeue_at, id), is given when it is written
claims from a floor   pgqueue_message_dequeue with p_floor_…, chosen by Floors.choose
claims from the head  the same without, when Floors._full_claim_at has come: it sees everything
puts it back          pgqueue_message_defer after an error: dequeue_at is new, and so is the place
gives it back         pgqueue_message_release, pgqueue_message_expire: the place is the old one
leaves                Consumer.drained in a burst: after a claim that found nothing, if it looked everywhere
====================  =============================================================================================

Late commits, and what is given back, lie below the floor and wait for the next claim from the head, about a second at
most.  Everything else must be found by any claim, and in the end all must be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "without claims from the head": "no head",
    "retries keep their old place": "old place",
    "a claim from a floor that finds nothing is the end": "leaves early",
}


class Message(NamedTuple):
    stage: str = "new"  # new, written, ready, taken, done
    place: int = -1
    excused: bool = False
    """It may lie below the floor: its commit was late, or it was given back."""
    again: bool = False


class State(NamedTuple):
    messages: tuple[Message, ...]
    floor: int = -1
    written: int = 0
    head_is_due: bool = False
    gone: bool = False


class Floors:
    def __init__(self, variant: str = "true", *, messages: int = 2) -> None:
        self.broken = VARIANTS[variant]
        self.messages = messages

    def first(self) -> State:
        return State((Message(),) * self.messages)

    def wrong(self, state: State) -> str | None:
        ready = [message for message in state.messages if message.stage == "ready"]
        if state.gone and ready:
            return "the worker has left, and a message is ready"
        if any(message.place < state.floor and not message.excused for message in ready):
            return "a message lies below the floor without a reason"
        return None

    def left(self, state: State) -> str | None:
        ready = any(message.stage == "ready" for message in state.messages)
        return "a message is ready, and no claim finds it" if ready else None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.gone:
            return
        for number, message in enumerate(state.messages):
            yield from self._message(state, number, message)
        if not state.head_is_due and self.broken != "no head":
            yield (
                "perhaps time goes by" if self._finds(state, state.floor) else "time goes by",
                state._replace(head_is_due=True),
            )
        yield from self._claim(state)

    def _message(self, state: State, number: int, message: Message) -> Iterator[tuple[str, State]]:
        def become(stage: str, **changes: object) -> State:
            changed = message._replace(stage=stage, **changes)  # type: ignore[arg-type]
            return state._replace(messages=replaced(state.messages, number, changed))

        match message.stage:
            case "new":
                written = become("written", place=state.written)
                yield f"perhaps message {number} is written", written._replace(written=state.written + 1)
            case "written":
                late = message.place < state.floor
                yield f"perhaps message {number} is committed", become("ready", excused=late)
            case "taken":
                yield f"perhaps message {number} is done", become("done")
                if not message.again:
                    place = message.place if self.broken == "old place" else state.written
                    back = become("ready", place=place, again=True, excused=False)
                    yield f"perhaps message {number} waits for a retry", back._replace(written=state.written + 1)
                    yield f"perhaps message {number} is given back", become("ready", again=True, excused=True)

    def _finds(self, state: State, floor: int) -> list[int]:
        found = [n for n, message in enumerate(state.messages) if message.stage == "ready" and message.place >= floor]
        return sorted(found, key=lambda n: state.messages[n].place)

    def _claim(self, state: State) -> Iterator[tuple[str, State]]:
        from_head = state.head_is_due or state.floor < 0
        where = "the head" if from_head else f"the floor {state.floor}"
        found = self._finds(state, -1 if from_head else state.floor)
        if found:
            message = state.messages[found[0]]
            floor = max(state.floor, message.place)
            yield (
                f"claims message {found[0]} from {where}",
                state._replace(
                    messages=replaced(state.messages, found[0], message._replace(stage="taken")),
                    floor=floor,
                    head_is_due=False,
                ),
            )
        # Whatever is taken already has to end first (WorkerProcess._is_finished).
        elif (from_head or self.broken == "leaves early") and "taken" not in {m.stage for m in state.messages}:
            yield f"perhaps leaves: nothing from {where}", state._replace(gone=True)
