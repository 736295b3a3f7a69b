"""Arrivals, lanes, room: a channel never runs more than it may, and nothing that waits in it is forgotten.

One channel with one lane, transactions that enqueue and end, and dequeues that overlap.  What stands for what:

====================  =============================================================================================
enqueues, ends        the trigger pgqueue_message_lane: a row of pgqueue_arrival, in the same transaction, no lock
arms                  pgqueue_lane_arm: locks lane and channel (skip locked), deletes the arrivals that it sees, takes
                      the ended ones off ``running`` and arms the lane
has its turn          pgqueue_lane_dequeue: locks lane and channel, if they are free, then reads the room and takes
                      messages (here one a turn), all in one statement each; adds them to ``running``
looks what is left    the same, its last update: halted where the channel is full, armed where a message waits
commits               the dequeue's transaction; what it had locked is free again
====================  =============================================================================================

Each statement of a dequeue sees what has been committed when it begins (READ COMMITTED), so transactions that commit
between two of them are what this is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": "",
    "the room is read before the lock is there": "stale room",
    "arrivals are taken without a lock": "unlocked arm",
    "an end does not arm a halted lane": "no rearming",
    "late disarm: arrivals are taken after the look at what is left": "early look",
    "arrivals are deleted that were not read": "deletes more",
    "a turn disarms its lane": "always disarms",
    "a retry is an end only": "retry unannounced",
    "a dequeue that is rolled back keeps what it has counted": "keeps counts",
}

DEQUEUES = 2


class Message(NamedTuple):
    stage: str = "new"  # new, inserted, waiting, taken, running, ending, gone
    retried: bool = False


class Dequeue(NamedTuple):
    stage: str = "idle"  # idle, turn, chosen, look, ended
    running: int = 0
    armed: bool = False
    halted: bool = False
    eaten: frozenset[tuple[int, str]] = frozenset()
    taken: int | None = None
    saw_more: bool = False


class State(NamedTuple):
    messages: tuple[Message, ...]
    dequeues: tuple[Dequeue, ...] = (Dequeue(),) * DEQUEUES
    arrivals: frozenset[tuple[int, str]] = frozenset()
    """Of which message, and what: waits, ended, both."""
    running: int = 0
    armed: bool = False
    halted: bool = False
    locked_by: int | None = None


class Lanes:
    def __init__(self, variant: str = "true", *, messages: int = 3, room: int = 2) -> None:
        self.broken = VARIANTS[variant]
        self.messages = messages
        self.limit = room

    def first(self) -> State:
        return State((Message(),) * self.messages)

    def wrong(self, state: State) -> str | None:
        stages = [message.stage for message in state.messages]
        if sum(stage in ("taken", "running", "ending") for stage in stages) > self.limit:
            return "the channel runs more than it may"
        ended = sum(what in ("ended", "both") for _, what in state.arrivals)
        if state.running - ended != sum(stage in ("running", "ending") for stage in stages):
            return "running has drifted"
        return None

    def left(self, state: State) -> str | None:
        stages = [message.stage for message in state.messages]
        room = self.limit - sum(stage in ("taken", "running", "ending") for stage in stages)
        return "a message waits, its channel has room, and nobody comes" if room > 0 and "waiting" in stages else None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for number, message in enumerate(state.messages):
            yield from self._message(state, number, message)
        for number, dequeue in enumerate(state.dequeues):
            yield from self._dequeue(state, number, dequeue)

    # Who enqueues and ends

    def _message(self, state: State, number: int, message: Message) -> Iterator[tuple[str, State]]:
        def become(stage: str, what: str | None = None) -> State:
            arrivals = state.arrivals | ({(number, what)} if what else set())
            changed = message._replace(stage=stage, retried=message.retried or what == "both")
            return state._replace(messages=replaced(state.messages, number, changed), arrivals=arrivals)

        match message.stage:
            case "new":
                yield f"perhaps message {number} is enqueued", become("inserted")
            case "inserted":
                yield f"perhaps message {number} is committed", become("waiting", "waits")
            case "running":
                yield f"perhaps message {number} ends", become("ending")
            case "ending":
                yield f"perhaps the end of message {number} is committed", become("gone", "ended")
                yield f"perhaps the end of message {number} is rolled back", become("running")
                if not message.retried:
                    retried = become("waiting", "both")
                    if self.broken == "retry unannounced":
                        retried = retried._replace(arrivals=state.arrivals | {(number, "ended")})
                    yield f"perhaps message {number} waits for a retry", retried

    # Who dequeues

    def _dequeue(self, state: State, number: int, dequeue: Dequeue) -> Iterator[tuple[str, State]]:
        free = state.locked_by in (None, number)
        match dequeue.stage:
            case "idle" if (state.arrivals or state.armed) and (free or self.broken == "unlocked arm"):
                yield f"dequeue {number} arms", self._arm(state, number)
            case "idle" if self.broken == "stale room" and state.armed:
                yield f"dequeue {number} arms", self._arm(state, number)
            case "turn":
                yield f"dequeue {number} has its turn", self._turn(state, number, dequeue)
            case "chosen" if free:
                yield f"dequeue {number} takes", self._take(state, number, dequeue)
            case "look":
                yield f"dequeue {number} looks what is left", self._look(state, number, dequeue)
            case "ended":
                yield f"dequeue {number} commits", self._commit(state, number, dequeue)
        if dequeue.stage in ("turn", "look", "ended"):
            yield f"perhaps dequeue {number} is rolled back", self._roll_back(state, number, dequeue)

    def _arm(self, state: State, number: int) -> State:
        eaten = state.arrivals
        running, armed, halted = state.running, state.armed, state.halted
        running -= sum(what in ("ended", "both") for _, what in eaten)
        if halted:
            if running < self.limit and eaten and self.broken != "no rearming":
                armed, halted = True, False
        elif any(what in ("waits", "both") for _, what in eaten):
            armed = True
        dequeue = Dequeue("turn", running, armed, halted, eaten, saw_more=self._waits(state))
        state = state._replace(dequeues=replaced(state.dequeues, number, dequeue))
        if self.broken in ("stale room", "unlocked arm") and state.locked_by not in (None, number):
            return state
        return state._replace(locked_by=number)

    def _waits(self, state: State) -> bool:
        return any(message.stage == "waiting" for message in state.messages)

    def _turn(self, state: State, number: int, dequeue: Dequeue) -> State:
        if not dequeue.armed:
            return self._with(state, number, dequeue._replace(stage="ended"))
        if self.broken == "stale room":
            return self._with(state, number, dequeue._replace(stage="chosen"))
        return self._take(state, number, dequeue)

    def _take(self, state: State, number: int, dequeue: Dequeue) -> State:
        waiting = [n for n, message in enumerate(state.messages) if message.stage == "waiting"]
        if dequeue.running >= self.limit or not waiting:
            return self._with(state, number, dequeue._replace(stage="look"))
        taken = state._replace(
            messages=replaced(state.messages, waiting[0], state.messages[waiting[0]]._replace(stage="taken"))
        )
        after = dequeue._replace(stage="look", taken=waiting[0], running=dequeue.running + 1)
        return self._with(taken._replace(locked_by=number), number, after)

    def _look(self, state: State, number: int, dequeue: Dequeue) -> State:
        more = dequeue.saw_more if self.broken == "early look" else self._waits(state)
        if self.broken == "early look":
            ended = sum(what in ("ended", "both") for _, what in state.arrivals - dequeue.eaten)
            dequeue = dequeue._replace(eaten=state.arrivals, running=dequeue.running - ended)
        halted = dequeue.running >= self.limit
        armed = not halted and more and self.broken != "always disarms"
        eaten = state.arrivals if self.broken == "deletes more" else dequeue.eaten
        return self._with(state, number, dequeue._replace(stage="ended", armed=armed, halted=halted, eaten=eaten))

    def _commit(self, state: State, number: int, dequeue: Dequeue) -> State:
        messages = state.messages
        if dequeue.taken is not None:
            messages = replaced(messages, dequeue.taken, messages[dequeue.taken]._replace(stage="running"))
        after = state._replace(
            messages=messages, arrivals=state.arrivals - dequeue.eaten, running=dequeue.running, armed=dequeue.armed,
            halted=dequeue.halted,
        )  # fmt: skip
        return self._unlocked(after, number)

    def _roll_back(self, state: State, number: int, dequeue: Dequeue) -> State:
        messages = state.messages
        if dequeue.taken is not None:
            messages = replaced(messages, dequeue.taken, messages[dequeue.taken]._replace(stage="waiting"))
        after = state._replace(messages=messages)
        if self.broken == "keeps counts":
            after = after._replace(running=dequeue.running)
        return self._unlocked(after, number)

    def _unlocked(self, state: State, number: int) -> State:
        held = None if state.locked_by == number else state.locked_by
        return self._with(state._replace(locked_by=held), number, Dequeue())

    def _with(self, state: State, number: int, dequeue: Dequeue) -> State:
        return state._replace(dequeues=replaced(state.dequeues, number, dequeue))
