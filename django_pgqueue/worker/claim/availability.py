"""Which workers sleep and which have room: each worker writes it into its row, and acts on the rows of the others.

By these rows enqueues notify sleepers, and workers wake each other.  The protocol and its interleavings are modelled in
tests/proofs/models/protocols/sleepers.py and room.py.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from django_pgqueue import functions
from django_pgqueue.consumer.polling import MAX_POLL_SECONDS, POLL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_pgqueue.consumer.polling import Polling
    from django_pgqueue.consumer.session import Session
    from django_pgqueue.worker.claim.prefetch import Prefetch
    from django_pgqueue.worker.claim.registration import Registration
    from django_pgqueue.worker.settings import WorkerSettings

    DoPart = Callable[[str, Callable[[], object]], None]


class Availability:
    """Called by the process's thread alone: by the claimer after each look, and in each turn to refresh the row."""

    def __init__(
        self,
        settings: WorkerSettings,
        session: Session,
        *,
        registration: Registration,
        polling: Polling,
        prefetch: Prefetch,
        do: DoPart,
    ) -> None:
        """``do`` does a part of the turn that may fail without harm to the rest (``Parts.do``)."""
        self.settings = settings
        self.session = session
        self.registration = registration
        self.polling = polling
        self.prefetch = prefetch
        self.do = do

    def looked(self, *, found: bool, full: bool) -> None:
        """Called after a look.  ``full``: the claim took all that it had room for, and so there may be more."""
        if not self.polling.asleep:
            self._tell_of_room(has_room=not full)
            if self.polling.wants_to_sleep or self._is_not_needed():
                self._fall_asleep()
        elif found and self.polling.polled and self.others_have_room():
            self.polling.sleeps_on(now=time.monotonic())
        elif found and (full or not self.polling.stays_asleep):
            self._wake_up(has_room=not full or self.prefetch.may_be_short)

    def full(self) -> None:
        """Called instead of a look, when there is no room for more."""
        if not self.polling.asleep:
            self._tell_of_room(has_room=False)
        elif self.prefetch.is_full_for_long(time.monotonic()):  # and the message of a notification would wait for it
            self._wake_up(has_room=False)

    def others_have_room(self) -> bool:
        """Returns whether others have room.  Refreshes the row of this worker, which sleeps."""
        self._be_seen(asleep=True)
        return self.polling.company.with_room > 0

    def be_seen_if_due(self, *, stopping: bool) -> None:
        if stopping and (self.registration.has_room or self.polling.asleep):
            self._wake_up(has_room=False)
        elif time.monotonic() >= self.registration.next_seen:
            self._be_seen(asleep=self.polling.asleep, has_room=self.registration.has_room)

    def be_seen_with_a_poll(self) -> None:
        """Refreshes the row of a sleeper in the transaction of its poll, if that would be due before the next poll."""
        if time.monotonic() >= self.registration.next_seen - MAX_POLL_SECONDS:
            self._be_seen(asleep=True)

    def leave(self) -> None:
        """Wakes the next worker, where that one may rest: it does not know when the retries are due that this one has
        put back.
        """
        if self.settings.idle_poll_seconds > POLL_SECONDS:
            self._wake_next()

    def _is_not_needed(self) -> bool:
        """Whether this worker may sleep, by chance: where several awake workers have room, one of them is enough.
        Fewer workers then share the messages, and take them in larger batches.
        """
        if not self.registration.has_room or not self.registration.has_news_of_others():
            return False
        return random.random() > 1 / max(1, self.polling.company.with_room)  # noqa: S311 -- spreads load

    def _fall_asleep(self) -> None:
        self._be_seen(asleep=True)
        self.polling.fell_asleep()  # and looks once more: an enqueue before this was committed notified nobody

    def _wake_up(self, *, has_room: bool) -> None:
        self.polling.woke_up()
        self._be_seen(asleep=False, has_room=has_room)
        if not has_room:
            self._wake_next()

    def _wake_next(self) -> None:
        """Wakes the next sleeper, because there may be more than this process can do.  For any queue: while this worker
        had room, enqueues woke nobody.
        """
        self.do(
            "wake the next worker", lambda: functions.worker_wake_next(self.session.statements, self.settings.queues)
        )

    def _tell_of_room(self, *, has_room: bool) -> None:
        """Writes whether the worker has room, if that has changed.  Enqueues wake no other worker while this one has
        room and looks all the time.  Without notifications it does not look all the time.
        """
        has_room, now = has_room and self.settings.listen, time.monotonic()
        if self.registration.news_of_room(has_room=has_room, now=now, at_once=self.prefetch.is_full_for_long(now)):
            self._be_seen(asleep=False, has_room=has_room)
            if not has_room:
                self._wake_next()

    def _be_seen(self, *, asleep: bool, has_room: bool = False) -> None:
        def be_seen() -> None:
            self.polling.company = self.registration.be_seen(self.session.statements, asleep=asleep, has_room=has_room)
            self.polling.ends_rest()  # the row no longer says that it rests

        self.do("presence", be_seen)
