"""Emits what durable jobs wait for: before they wait, while they are about to, and long afterwards."""

from __future__ import annotations

import contextlib
import heapq
import random
import threading
import time

import psycopg
from django.db import DatabaseError, InterfaceError, connection, transaction

from django_pgqueue.durable import emit
from tests.proofs.reliability import durable

MAX_DELAY_SECONDS = 3.0
AT_ONCE = 20


class Emitter:
    """Emits each event in the end, whatever became of the transaction that enqueued its waiter."""

    def __init__(self, seed: int, over: threading.Event) -> None:
        self._chooser = random.Random(f"{seed} emitter")
        self._over = over
        self._guard = threading.Lock()
        self._due: list[tuple[float, int, str]] = []

    def expect(self, token: int) -> None:
        """Emits the events of a job at a time of their own, soon."""
        with self._guard:
            for name in durable.events_of(token):
                at = time.monotonic() + self._chooser.uniform(0, MAX_DELAY_SECONDS)
                heapq.heappush(self._due, (at, token, name))

    def emit_all(self, token: int) -> None:
        """Emits the events of a job in the transaction that enqueues it."""
        for name in durable.events_of(token):
            emit(name, {"token": token})

    def run(self) -> None:
        while not self._over.wait(0.01):
            if due := self._take():
                self._emit(due)
        connection.close()

    def _take(self) -> list[tuple[float, int, str]]:
        now = time.monotonic()
        with self._guard:
            found: list[tuple[float, int, str]] = []
            while self._due and self._due[0][0] <= now and len(found) < AT_ONCE:
                found.append(heapq.heappop(self._due))
            return found

    def _emit(self, due: list[tuple[float, int, str]]) -> None:
        try:
            with transaction.atomic():
                for _, token, name in sorted(due, key=lambda each: each[2]):
                    emit(name, {"token": token})
                if self._chooser.random() < 0.2:  # its waiters come while it is open
                    time.sleep(self._chooser.uniform(0, 0.3))
        except (DatabaseError, InterfaceError, psycopg.Error):
            with contextlib.suppress(DatabaseError, InterfaceError):
                connection.close()
            with self._guard:
                for each in due:
                    heapq.heappush(self._due, each)
            time.sleep(0.1)
