"""Claim, heartbeat, end, give back, expire: who may run a message, and whose end counts.

One message and some slots.  A slot belongs to a worker; two slots may be of the same one.  What stands for what:

=====================  ============================================================================================
claim                  pgqueue_message_dequeue: ``update … set unlock_at, worker, attempt = attempt + 1 … skip locked``
the claim is undone    a crash of the server: workers claim with synchronous_commit = off, and go on without knowing
claims what it has     Claimer._begin and Held.add: the claim had been undone, and this one renews it
the lock runs out      time goes by: unlock_at <= pgqueue_now()
expire                 pgqueue_message_expire, in whoever dequeues next: ``for update skip locked``, then lost or failed
heartbeat              pgqueue_message_heartbeat; a lock that is lengthened has not run out
ends (takes the row)   pgqueue_message_complete: ``delete … where worker = … and attempt = …``, in the transaction of an
                       atomic task, whose writes are already there (atomic.run_atomically)
commits, rolls back    its commit; AttemptLost rolls it back
gives back             pgqueue_message_release, of what was not begun: the attempt does not count
dies                   the worker's process is killed; what it had not committed is rolled back
=====================  ============================================================================================

Never: effects that are committed twice, an end that counts for an attempt of somebody else, a message that is given
back or kept by somebody who does not hold it, more attempts than max_attempts, a message that nobody can run any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.proofs.models.protocols.checker import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {
    "true": frozenset[str](),
    "no fencing": frozenset({"no fence"}),
    "the token has no attempt": frozenset({"no attempt"}),
    "the token has no worker": frozenset({"no worker"}),
    "a heartbeat without a fence": frozenset({"heartbeat unfenced"}),
    "giving back without a fence": frozenset({"release unfenced"}),
    "what it still has is begun again": frozenset({"begins twice"}),
    "expire does not count": frozenset({"expire uncounted"}),
    "what is being ended expires": frozenset({"expire ignores row locks"}),
    "the effects are committed before the end": frozenset({"effects first"}),
}

OWNERS = ("A", "A", "B")
"""The worker of each slot."""
MAX_ATTEMPTS = 3
MAX_CRASHES = 1


class Message(NamedTuple):
    worker: str | None = None
    attempt: int = 0
    ran_out: bool = False
    holder: int | None = None
    """The slot whose claim it was: what the database does not know, to compare with what it believes."""
    row_lock: int | None = None
    """The slot whose transaction has ended it and is not committed."""


class Slot(NamedTuple):
    stage: str = "idle"  # idle, claimed, running, ending
    attempt: int = 0


class State(NamedTuple):
    message: Message | None
    slots: tuple[Slot, ...]
    effects: int = 0
    claims: int = 0
    """Marks and not given back."""
    given: int = 0
    crashes: int = 0
    wrong: str | None = None


class Claims:
    def __init__(self, variant: str = "true") -> None:
        self.broken = VARIANTS[variant]

    def first(self) -> State:
        return State(Message(), (Slot(),) * len(OWNERS))

    def wrong(self, state: State) -> str | None:
        if state.effects > 1:
            return "the effects of the message are there twice"
        if state.claims > MAX_ATTEMPTS:
            return "the message was begun more often than it may be"
        return state.wrong

    def left(self, state: State) -> str | None:
        return None if state.message is None else "the message is still there, and nobody runs it"

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.message is not None:
            yield from self._time(state, state.message)
        for number, slot in enumerate(state.slots):
            yield from self._slot(state, number, slot)

    def _time(self, state: State, message: Message) -> Iterator[tuple[str, State]]:
        if message.worker is not None and not message.ran_out:
            yield "the lock runs out", state._replace(message=message._replace(ran_out=True))
        free = message.row_lock is None or "expire ignores row locks" in self.broken
        if message.worker is not None and message.ran_out and free:
            counts = "expire uncounted" not in self.broken
            if message.attempt >= MAX_ATTEMPTS and counts:
                yield "somebody expires it: it fails", state._replace(message=None)
            else:
                yield "somebody expires it: it is lost", state._replace(message=Message(attempt=message.attempt))
        if message.holder is not None and state.crashes < MAX_CRASHES and message.row_lock is None:
            undone = state._replace(
                message=Message(attempt=message.attempt - 1), crashes=state.crashes + 1, claims=state.claims - 1
            )
            yield "the server crashes and forgets the claim", undone

    def _slot(self, state: State, number: int, slot: Slot) -> Iterator[tuple[str, State]]:
        name = f"slot {number} of {OWNERS[number]}"
        message = state.message
        if slot.stage == "idle":
            if message is not None and message.worker is None:
                yield self._claim(state, number, message, name)
            return
        if slot.stage != "ending":
            yield f"{name} dies", self._with(state, number, Slot())
            yield from self._heartbeat(state, number, slot, name)
        if slot.stage == "claimed":
            yield f"{name} begins", self._with(state, number, slot._replace(stage="running"))
            yield from self._give_back(state, number, slot, name)
        elif slot.stage == "running":
            yield from self._end(state, number, slot, name)
        elif slot.stage == "ending":
            ended = state.effects + ("effects first" not in self.broken)
            yield f"{name} commits", self._with(state, number, Slot(), message=None, effects=ended)
            unlocked = None if message is None else message._replace(row_lock=None)
            yield f"{name} dies before its commit", self._with(state, number, Slot(), message=unlocked)

    def _claim(self, state: State, number: int, message: Message, name: str) -> tuple[str, State]:
        claimed = Message(OWNERS[number], message.attempt + 1, holder=number)
        for other, slot in enumerate(state.slots):
            same = OWNERS[other] == OWNERS[number] and slot.stage != "idle" and slot.attempt == claimed.attempt
            if same and "begins twice" not in self.broken:
                renewed = claimed._replace(holder=other)
                return f"{name} claims it, which slot {other} still has", state._replace(
                    message=renewed, claims=state.claims + 1
                )
        return f"{name} claims it", self._with(
            state, number, Slot("claimed", claimed.attempt), message=claimed, claims=state.claims + 1
        )

    def _is_held(self, message: Message | None, number: int, slot: Slot, *, unfenced: str) -> bool:
        """What the where clause says."""
        if message is None:
            return False
        if {"no fence", unfenced} & self.broken:
            return True
        return ("no worker" in self.broken or message.worker == OWNERS[number]) and (
            "no attempt" in self.broken or message.attempt == slot.attempt
        )

    def _heartbeat(self, state: State, number: int, slot: Slot, name: str) -> Iterator[tuple[str, State]]:
        message = state.message
        if message is None or message.row_lock is not None:  # it would wait for the end
            return
        if message.ran_out and self._is_held(message, number, slot, unfenced="heartbeat unfenced"):
            wrong = None if message.holder == number else f"{name} keeps what it does not hold"
            yield f"{name} lengthens the lock", state._replace(message=message._replace(ran_out=False), wrong=wrong)

    def _give_back(self, state: State, number: int, slot: Slot, name: str) -> Iterator[tuple[str, State]]:
        message = state.message
        if message is None or message.row_lock is not None or state.given:
            return
        if self._is_held(message, number, slot, unfenced="release unfenced"):
            wrong = None if message.holder == number else f"{name} gives back what it does not hold"
            yield f"{name} gives it back", self._with(
                state, number, Slot(), message=Message(attempt=message.attempt - 1), wrong=wrong,
                claims=state.claims - 1, given=1,
            )  # fmt: skip

    def _end(self, state: State, number: int, slot: Slot, name: str) -> Iterator[tuple[str, State]]:
        message = state.message
        if message is not None and message.row_lock is not None:
            return  # it waits for the other transaction
        effects = state.effects + ("effects first" in self.broken)
        if message is None or not self._is_held(message, number, slot, unfenced=""):
            yield (
                f"{name} ends it: not its own any more, rolled back",
                self._with(state, number, Slot(), effects=effects),
            )
            return
        wrong = None if message.holder == number else f"the end of {name} counts, and it does not hold the message"
        yield f"{name} ends it", self._with(
            state, number, slot._replace(stage="ending"), message=message._replace(row_lock=number), wrong=wrong,
            effects=effects,
        )  # fmt: skip

    def _with(self, state: State, number: int, slot: Slot, **changes: object) -> State:
        return state._replace(slots=replaced(state.slots, number, slot), **changes)  # type: ignore[arg-type]
