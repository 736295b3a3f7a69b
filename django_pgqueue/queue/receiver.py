"""Brings the messages of a queue to a listener, in a thread with a connection of its own."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

import psycopg

from django_pgqueue import functions
from django_pgqueue.consumer.connection import answer_seconds
from django_pgqueue.consumer.errors import first_line, is_of_the_connection
from django_pgqueue.consumer.gone import Gone
from django_pgqueue.consumer.hold import Hold
from django_pgqueue.consumer.loop import Loop
from django_pgqueue.consumer.polling import Polling
from django_pgqueue.consumer.row import ASLEEP_MS, SEEN_EVERY_SECONDS, SEEN_HOLDING_SECONDS, hostname, new_id
from django_pgqueue.consumer.session import Session
from django_pgqueue.consumer.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_pgqueue.functions import Connection, Received

logger = logging.getLogger("django_pgqueue.worker")

MAX_LEAVE_SECONDS = 10.0
STATEMENT_MS = 60_000
"""Shorter than the wait for an answer: a claim whose session is closed meanwhile gives its messages to nobody."""
LOCK_TIMEOUT = "200ms"
"""A consumer that ends a message in an open transaction has locked its row: the other messages cannot wait for that."""


class Pump:
    """Holds at most ``slots`` unfinished messages for its consumer, and renews their locks.

    ``deliver`` gets each message, then None when there will be no more, or the error that ended the thread.  The
    consumer calls ``ending`` and then ``ended`` or ``kept``: an ended message makes room for the next one.
    """

    def __init__(
        self, *, queue: str, database: str, slots: int, lock_ms: int, listen: bool, deliver: Callable[[Any], None]
    ) -> None:
        self.queue, self.slots, self.lock_ms = queue, slots, lock_ms
        self.deliver = deliver
        self.hostname = hostname()
        self.id = new_id()
        self.polling = Polling(listen=listen)
        self.session = Session(
            database,
            consumer=self.id,
            pooled=not listen,
            notified=self.polling.notified,
            kind="listener",
            statement_ms=STATEMENT_MS,
            answer_seconds=self._answer_seconds,
        )
        self.gone = Gone(self.session)
        self.hold = Hold()
        self.held: dict[int, Received] = {}
        self.being_ended: set[int] = set()
        self.has_room_again = False
        self.lock = threading.RLock()  # also for the garbage collector, which may close the pump anywhere
        self.stopping = False
        self.thread: threading.Thread | None = None
        self.next_seen = self.next_heartbeat = 0.0
        self.wakeup: Wakeup
        self.loop: Loop

    @property
    def connection(self) -> psycopg.Connection[Any]:
        return self.session.connection

    @property
    def statements(self) -> Connection:
        return self.session.statements

    # What the consumer calls

    def start(self) -> None:
        """Starts the thread, once.  Raises if the database is not there now; later errors of the connection are not
        raised.
        """
        with self.lock:
            if self.thread is not None or self.stopping:
                return
            self.session.open()
            with ExitStack() as on_error:  # the system has no more files or threads: a later call may get them
                on_error.callback(self.session.connection.close)
                self.wakeup = Wakeup()
                on_error.callback(self.wakeup.close)
                self.loop = Loop(self.session, self.polling, self.wakeup, on_reconnect=self._reconnected)
                thread = threading.Thread(target=self._run, name=f"pgqueue-listen-{self.queue}", daemon=True)
                thread.start()
                on_error.pop_all()
            self.thread = thread

    def close(self) -> None:
        """Gives back the held messages.  Returns when that is done."""
        with self.lock:
            self.stopping = True
            thread = self.thread
        if thread is None:
            self.deliver(None)
        elif thread is not threading.current_thread():
            self.wakeup.wake()
            thread.join(MAX_LEAVE_SECONDS)

    def holds(self, message: Received) -> bool:
        """Whether a message that was delivered may be begun: its lock may have been lost since."""
        return self.held.get(message.id) is message and not self.stopping

    def ending(self, message: Received) -> None:
        with self.lock:
            self.being_ended.add(message.id)

    def kept(self, message: Received) -> None:
        """Called when the message was not ended after all."""
        with self.lock:
            self.being_ended.discard(message.id)

    def ended(self, message: Received) -> None:
        with self.lock:
            self.being_ended.discard(message.id)
            if self.held.get(message.id) is message:
                del self.held[message.id]
                self.has_room_again = True
        self.wakeup.wake()

    # The thread

    def _answer_seconds(self) -> float:
        return min(answer_seconds(), MAX_LEAVE_SECONDS / 2) if self.stopping else answer_seconds()

    def _run(self) -> None:
        # Ctrl-C is for the main thread, which may wait for a message: a signal that this thread takes would not wake
        # it.
        if hasattr(signal, "pthread_sigmask"):  # Windows runs all handlers in the main thread
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        last: BaseException | None = None
        try:
            with functions.explained(self.session.database):
                while not self.stopping:
                    self.loop.turn(self._turn, self._due_at)
        except BaseException as error:  # noqa: BLE001 -- the consumer gets it
            last = error
            self.stopping = True
        finally:
            self._leave()
            self.deliver(last)

    def _turn(self) -> None:
        if not self.session.is_closed:
            self._heartbeat_if_due()  # whatever else fails: locks may be shorter than a pause
        if not self.session.is_left_alone:
            self._be_seen_if_due()
            self._look_for_the_dead_if_due()
            self._claim_if_due()

    def _due_at(self) -> float:
        if self.stopping:
            return 0.0
        heartbeat = self.next_heartbeat if self.held and not self.session.is_closed else float("inf")
        if self.session.is_left_alone:
            return min(heartbeat, self.session.reconnect_at)
        due = [heartbeat, self.next_seen, self.gone.next_look]
        if self._room() > 0:
            due.append(self.polling.next_look)
        return min(due)

    # Claiming

    def _room(self) -> int:
        return self.slots - len(self.held)

    def _claim_if_due(self) -> None:
        with self.lock:
            if self.has_room_again:
                self.has_room_again = False
                self.polling.looks_soon()  # and perhaps a message has been put back for later
            room = self._room()
        if room <= 0 or self.stopping or not self.polling.is_due(self._writing, now=time.monotonic()):
            return
        # A sleeper claims, and asks when the next message is due, for the price of one transaction.
        polls, asked = self.polling.is_poll, time.monotonic()
        self.polling.looks()
        # A claim that is to be flushed is not committed before that.
        with self.session.transaction() if polls or self.session.flushes else nullcontext():
            claimed = self._claimed(room, polls=polls)
        self._hand_over(claimed, asked=asked)
        if claimed and self.polling.asleep and not self.polling.stays_asleep:
            self._wake_up(full=len(claimed) >= room)
        elif self.polling.wants_to_sleep:
            self._be_seen(asleep=True)
            self.polling.fell_asleep()  # and looks once more: a send before this was committed notified nobody

    def _claimed(self, room: int, *, polls: bool) -> list[Received]:
        prospect = functions.message_prospect(self.statements, queues=[self.queue]) if polls else None
        if prospect is not None and prospect.misses_one:
            self.gone.misses_one()
        claimed = functions.message_dequeue(
            self.statements, queues=[self.queue], limit=room, lock_ms=self.lock_ms, worker=self.id, flush=False
        )
        self.polling.looked(found=len(claimed), wanted=room, now=time.monotonic())
        if self.polling.stays_asleep:
            self.polling.slept_on(prospect, now=time.monotonic())
        if claimed:
            self.session.flush_claims()
        return claimed

    def _writing(self) -> frozenset[int]:
        return functions.transactions_writing(self.statements)

    def _has(self, message: Received) -> bool:
        """Whether the attempt is held: a crash of the server may have undone its claim, and then it is claimed here
        again.
        """
        held = self.held.get(message.id)
        return held is not None and held.attempt == message.attempt

    def _hand_over(self, claimed: Sequence[Received], *, asked: float) -> None:
        """``asked``: when the claim was sent.  The locks last from about then, however late the answer came."""
        new = [message for message in claimed if not self._has(message)]
        if len(new) < len(claimed):
            self.session.begin_to_flush()
        if not new:
            return
        if not self.held:
            self.next_heartbeat = float("inf")
            self.next_seen = min(self.next_seen, time.monotonic() + SEEN_HOLDING_SECONDS)
        self.next_heartbeat = min(self.next_heartbeat, asked + self._heartbeat_every())
        with self.lock:
            self.held |= {message.id: message for message in new}
        for message in new:
            self.deliver(message)

    def _wake_up(self, *, full: bool) -> None:
        self.polling.woke_up()
        self._be_seen(asleep=False)
        if full:  # there may be more than this consumer can take: it wakes the next sleeper
            functions.worker_wake(self.statements, self.queue)

    # Keeping what is held

    def _heartbeat_every(self) -> float:
        return self.lock_ms / 1000 / 3

    def _heartbeat_if_due(self) -> None:
        if not self.held or time.monotonic() < self.next_heartbeat:
            return
        self.next_heartbeat = time.monotonic() + self._heartbeat_every()
        with self.lock:
            held = list(self.held.values())
        ours = self._without_waiting(held, self._heartbeat)
        with self.lock:
            # A message that is just being ended may be gone because it has ended.
            lost = [m for m in held if m.id not in ours and self.held.get(m.id) is m and m.id not in self.being_ended]
            for message in lost:
                del self.held[message.id]
                self.has_room_again = True
        if lost:  # perhaps the server crashed behind a pooler, and their claims with it
            self.session.begin_to_flush()
        for message in lost:
            logger.warning(
                "lost id=%s queue=%s attempt=%s: its lock ran out, and another consumer took it over while it was "
                "held here",
                message.id, self.queue, message.attempt,
            )  # fmt: skip

    def _heartbeat(self, messages: Sequence[Received]) -> set[int]:
        return functions.message_heartbeat(self.statements, messages, worker=self.id, lock_ms=self.lock_ms)

    def _release(self, messages: Sequence[Received]) -> set[int]:
        return functions.message_release(self.statements, messages, worker=self.id)

    def _without_waiting(
        self, messages: Sequence[Received], call: Callable[[Sequence[Received]], set[int]]
    ) -> set[int]:
        """Returns the ids that ``call`` returns, and those whose rows another session has locked: they are
        being ended.
        """
        try:
            with self.session.transaction():
                self.connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
                return call(messages)
        except psycopg.errors.LockNotAvailable:
            if len(messages) == 1:
                return {messages[0].id}
            return {message_id for each in messages for message_id in self._without_waiting([each], call)}

    def _be_seen_if_due(self) -> None:
        if time.monotonic() >= self.next_seen:
            self._be_seen(asleep=self.polling.asleep)

    def _be_seen(self, *, asleep: bool) -> None:
        self.next_seen = time.monotonic() + (SEEN_HOLDING_SECONDS if self.held else SEEN_EVERY_SECONDS)
        self.polling.company = functions.worker_seen(
            self.statements,
            worker=self.id,
            queues=[self.queue],
            exclude_queues=(),
            hostname=self.hostname,
            pid=os.getpid(),
            slots=self.slots,
            asleep_ms=ASLEEP_MS if asleep else None,
            tasks=False,
            held=self.hold.take(self.session, self.id),
        )
        if self.polling.company.misses_one:
            self.gone.misses_one()

    def _look_for_the_dead_if_due(self) -> None:
        try:
            self.gone.look_if_due(self.polling.notified)
        except psycopg.Error as error:  # of what others held: that must not end this listener
            if is_of_the_connection(self.connection, error):
                raise
            logger.warning("database error listener=%s while looking for the dead: %s", self.id, first_line(error))

    def _reconnected(self) -> None:
        self.gone.reconnected()
        self.next_seen = self.next_heartbeat = 0.0
        self.polling.notified()

    def _leave(self) -> None:
        with self.lock:
            held, self.held = list(self.held.values()), {}
        try:
            if held:
                self._without_waiting(held, self._release)
                functions.worker_wake(self.statements, self.queue)
            functions.worker_gone(self.statements, self.id)
            self.connection.close()
        except psycopg.Error as error:  # the locks of what was held run out
            logger.warning("database error listener=%s while leaving: %s", self.id, first_line(error))
        self.wakeup.close()
