"""Messages that this process has claimed and does not begin: it gives them back, or parks them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg

from django_pgqueue import functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.consumer.parts import Parts
    from django_pgqueue.consumer.polling import Polling
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.functions import Received
    from django_pgqueue.worker.claim.prefetch import Prefetch
    from django_pgqueue.worker.claim.unknown import UnknownMessages
    from django_pgqueue.worker.claim.versions import Versions
    from django_pgqueue.worker.run.slots import Slots
    from django_pgqueue.worker.settings import WorkerSettings

STALLED_SECONDS = 0.5
"""When nothing has ended for this long, the worker gives back what it claimed ahead: others may start it sooner."""


class GiveBack:
    """Called by the process's thread alone: by the claimer after a claim, and in each turn."""

    def __init__(
        self,
        settings: WorkerSettings,
        session: Session,
        parts: Parts,
        *,
        slots: Slots,
        polling: Polling,
        prefetch: Prefetch,
        unknown: UnknownMessages,
        versions: Versions,
        forget: Callable[[Received], None],
    ) -> None:
        """``forget`` is called for each message that this process holds no more."""
        self.settings = settings
        self.session = session
        self.parts = parts
        self.slots = slots
        self.polling = polling
        self.prefetch = prefetch
        self.unknown = unknown
        self.versions = versions
        self.forget = forget
        self.unstarted: list[Received] = []
        """Messages that no slot has begun, to be given back."""
        self.unparked: list[tuple[Received, str]] = []
        """Messages that this worker does not know, to be parked, with the reasons."""
        self.later: list[Received] = []
        """Messages of a later version, about which is not decided yet."""
        self.left: list[tuple[Received, str]] = []
        """Messages that are left to workers of a later version, to be parked, with the reasons."""

    def do_if_due(self, *, stopping: bool) -> None:
        """Gives back what no slot has begun, when the process stops or when nothing has ended for a while."""
        if self._has_to_park:
            self.parts.do("park", self._park)
        self.parts.do("give back", lambda: self._give_back(stopping=stopping))

    def due_at(self) -> float:
        """Returns when the next turn has something to do here, by the monotonic clock."""
        due_at = float("inf")
        if self.slots.waiting():
            due_at = self.parts.due_at("give back", self.prefetch.last_progress + STALLED_SECONDS)
        return min(due_at, self.parts.due_at("park", 0.0)) if self._has_to_park else due_at

    def take_back(self) -> None:
        """Takes unstarted messages from the slots, to be given back.  None of them begins from now on, even while the
        database is away.
        """
        self.unstarted += self.slots.take_unstarted()

    def park(self, unknown: list[tuple[Received, str]], later: list[Received], *, room: int, alone: bool) -> None:
        """Parks what this worker does not know, or leaves to others, at once if that is possible.  ``room``: so many of
        a later version may begin if no worker of that version lives.  ``alone``: the claim has found no others.
        """
        self.unparked += unknown
        self.later += later
        if unknown or later:
            self.parts.do("park", lambda: self._park(room, alone=alone))

    def not_begun(self) -> set[int]:
        """Returns the ids of the messages that are still to be given back or parked."""
        to_park = [message for message, _ in self.unparked + self.left]
        return {message.id for message in self.unstarted + self.later + to_park}

    @property
    def has_left_something(self) -> bool:
        """Whether messages that this process has not begun are still locked by it."""
        return bool(self.unstarted) or self._has_to_park

    @property
    def _has_to_park(self) -> bool:  # after an error
        return bool(self.unparked or self.later or self.left)

    def _give_back(self, *, stopping: bool) -> None:
        stalled = self.slots.waiting() and time.monotonic() - self.prefetch.last_progress > STALLED_SECONDS
        if stalled or stopping:
            self.prefetch.stalled()
            self.take_back()
        while self.unstarted:  # by worker: after a failover this one has another name than those it held before
            worker = self.unstarted[0].worker
            ours = [message for message in self.unstarted if message.worker == worker]
            try:
                functions.message_release(self.session.statements, ours, worker=worker)
            except psycopg.errors.LockNotAvailable:
                if not self.parts.are_together:
                    self._give_back_free(ours, worker)
                raise
            self._given_back(ours)

    def _give_back_free(self, messages: list[Received], worker: str) -> None:
        """Gives back those whose rows no other session has locked: they do not wait for the others."""
        with self.session.transaction():
            locked = functions.message_locked(self.session.statements, [message.id for message in messages])
            free = [message for message in messages if message.id not in locked]
            functions.message_release(self.session.statements, free, worker=worker)
        self._given_back(free)

    def _given_back(self, messages: list[Received]) -> None:
        for message in messages:
            self.forget(message)
        ids = {message.id for message in messages}
        self.unstarted = [message for message in self.unstarted if message.id not in ids]

    def _park(self, room: int = 0, *, alone: bool = False) -> None:
        """Tries again in the next turn what could not be parked."""
        if self.later:
            self._decide(room, alone=alone)
        self.unparked = self._parked(self.unparked, unknown=True)
        self.left = self._parked(self.left, unknown=False)
        if self.settings.burst:  # which ends when it finds nothing more
            self.polling.notified()

    def _decide(self, room: int, *, alone: bool) -> None:
        taken, left = self.versions.sort(self.later)
        self.later = []
        self.left += left
        self.unknown.left(message for message, _ in left)
        new, unknown = self.unknown.sift(taken)
        self.unparked += unknown
        self.unstarted += new[room:]
        self.slots.submit(new[:room])
        if alone and not taken:
            self.unknown.none_runs(len(left))

    def _parked(self, waiting: list[tuple[Received, str]], *, unknown: bool) -> list[tuple[Received, str]]:
        """Parks them, and returns what is left to do."""
        while waiting:  # by worker, as above
            worker = waiting[0][0].worker
            ours = [(message, reason) for message, reason in waiting if message.worker == worker]
            functions.message_park(self.session.statements, ours, worker=worker, unknown=unknown)
            waiting = [(message, reason) for message, reason in waiting if message.worker != worker]
            for message, _ in ours:
                self.forget(message)
        return waiting
