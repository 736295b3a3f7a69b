"""Enqueues, in threads that behave as an application would: transactions that commit, roll back, or break."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import DatabaseError, InterfaceError, OperationalError, connection, connections, transaction

from django_pgqueue.backend import enqueue_many
from django_pgqueue.exceptions import ChannelFull
from tests.proofs.reliability import durable, tasks
from tests.proofs.reliability.emitter import Emitter
from tests.proofs.reliability.pace import REST

if TYPE_CHECKING:
    from tests.proofs.reliability.pace import Pace

ISOLATIONS = ("read committed", "read committed", "repeatable read", "serializable")
THREADS = len(ISOLATIONS)
BEHIND_THE_POOLER = 1
"""The thread that enqueues through PgBouncer."""
CHANNELS: dict[str, int | None] = {"c0": 1, "c1": 2, "c2": 3, "c3": 8, "c4": None, "c5": None, "c6": None, "c7": None}
KINDS = {
    "glance": 30, "glance_on": 15, "note": 8, "pay": 26, "pay_late": 2, "flaky": 3, "fragile": 2, "patient": 2,
    "pay_slowly": 0.5, "take": 0.7, "take_on": 0.5, "alone": 4, "alone_until_it_starts": 4, "follow": 12,
}  # fmt: skip


BULK = 60
QUEUES = ("default", "default", "mail", "report")
BYSTANDERS = "bystanders"
"""A queue, a channel and a login that no fault aims at."""
BYSTANDERS_A_SECOND = 10.0
CROWD, CROWD_SIZE = "crowd", 40
"""A queue whose worker runs so many jobs at a time."""
LIMITS = CHANNELS | {BYSTANDERS: 8}


class RolledBack(Exception):
    """The application changed its mind."""


class Generator:
    """Knows what it was told had been committed; what was committed, only the database knows."""

    def __init__(self, seed: int, pace: Pace) -> None:
        self.seed = seed
        self.pace = pace
        self.pooler: int | None = None
        """The port of PgBouncer, where there is one."""
        self.acknowledged: set[int] = set()
        self.rolled_back: set[int] = set()
        self.unknown: set[int] = set()
        self.errors: dict[str, int] = {}
        self.bystanders: list[tuple[int, float]] = []
        """The token of each job that nobody aims at, and when it was asked for."""
        self.refused: list[tuple[float, float, str]] = []
        """When such a job was asked for, when it had failed to be enqueued, and why."""
        self.over = threading.Event()
        self.emitter = Emitter(seed, self.over)
        self._threads = [
            threading.Thread(target=self._run, args=[number], name=f"generator-{number}", daemon=True)
            for number in range(THREADS)
        ] + [
            threading.Thread(target=self._run_bystanders, name="bystanders", daemon=True),
            threading.Thread(target=self.emitter.run, name="emitter", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        chooser = random.Random(f"{self.seed} generator {number}")
        token = number * 10_000_000
        if number == BEHIND_THE_POOLER and self.pooler is not None:
            connect_as(PORT=str(self.pooler), HOST="127.0.0.1", OPTIONS={"connect_timeout": 5})
        while not self.over.is_set():
            if not self.pace.may_enqueue():
                time.sleep(0.02)
                continue
            count = chooser.choice((1, 1, 2, 5, 10, BULK))
            tokens = list(range(token + 1, token + 1 + count))
            token += count
            self._transact(chooser, tokens, ISOLATIONS[number])
        connection.close()

    def _run_bystanders(self) -> None:
        """Ordinary jobs at an even pace, and how long each waits from the moment that somebody asks for it."""
        chooser = random.Random(f"{self.seed} bystanders")
        connect_as(USER="bystander")
        token = THREADS * 10_000_000
        while not self.over.wait(chooser.uniform(0.5, 1.5) / BYSTANDERS_A_SECOND):
            if self.pace.phase == REST:
                continue
            token += 1
            task = chooser.choice((tasks.glance, tasks.glance, tasks.glance_on, tasks.pay))
            channel = chooser.choice((None, BYSTANDERS))
            asked = time.time()
            try:
                with transaction.atomic():
                    result = task.using(queue_name=BYSTANDERS, channel=channel).enqueue(token)
                    tasks.remember(token, result.id)
            except (DatabaseError, InterfaceError, psycopg.Error) as error:
                self.refused.append((asked, time.time(), f"{type(error).__name__}: {error}".splitlines()[0]))
                self._start_over()
            else:
                self.acknowledged.add(token)
                self.bystanders.append((token, asked))
        connection.close()

    def _transact(self, chooser: random.Random, tokens: list[int], isolation: str) -> None:
        kept: set[int] = set()
        try:
            self._in_transaction(chooser, tokens, isolation, kept)
        except RolledBack:
            self.rolled_back |= kept
        except (DatabaseError, InterfaceError, psycopg.Error) as error:
            name = type(error.__cause__ or error).__name__
            self.errors[name] = self.errors.get(name, 0) + 1
            self.unknown |= kept
            self._start_over()
        else:
            self.acknowledged |= kept
            self.pace.enqueued(len(kept))

    def _in_transaction(self, chooser: random.Random, tokens: list[int], isolation: str, kept: set[int]) -> None:
        changes_its_mind = chooser.random() < 0.08
        dawdles = chooser.random() < 0.01
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"set transaction isolation level {isolation}")
            if len(tokens) >= BULK:
                kept |= set(tokens)
                self._enqueue_many(chooser, tokens)
                tokens = []
            for token in tokens:
                if chooser.random() < 0.05:
                    self._in_vain(chooser, token)
                else:
                    kept.add(token)
                    self._enqueue(chooser, token)
            if dawdles:
                time.sleep(chooser.uniform(0.1, 2.0))  # it commits late: below the floor of those who went on
            if changes_its_mind:
                raise RolledBack

    def _enqueue_many(self, chooser: random.Random, tokens: list[int]) -> None:
        """In bulk, which tells no ids: the rows are there to be asked for."""
        kinds = (tasks.glance, tasks.glance, tasks.glance_on, tasks.pay, durable.follow, durable.follow)
        task, queue = chooser.choice(kinds), chooser.choice(QUEUES)
        if task is durable.follow:
            queue = durable.QUEUE
            for token in tokens:
                self.emitter.expect(token)
        enqueue_many(task.using(queue_name=queue), tokens)
        with connection.cursor() as cursor:
            cursor.execute(
                "insert into storm_enqueued (token, message_id) select token, message_id from storm_change "
                "where op = 'I' and xid = pg_current_xact_id()::text::bigint and token between %s and %s",
                [tokens[0], tokens[-1]],
            )
            if cursor.rowcount != len(tokens):
                message = f"{cursor.rowcount} of {len(tokens)} messages were enqueued in bulk"
                raise RuntimeError(message)

    def _in_vain(self, chooser: random.Random, token: int) -> None:
        """In a savepoint that is rolled back: this one must never run."""
        self.rolled_back.add(token)
        with transaction.atomic():
            self._enqueue(chooser, token)
            transaction.set_rollback(True)
        if transaction.get_rollback():  # the savepoint could not be rolled back: Django would not commit, and be silent
            message = "the connection is lost"
            raise OperationalError(message)

    def _enqueue(self, chooser: random.Random, token: int) -> None:
        [kind] = chooser.choices(list(KINDS), list(KINDS.values()))
        arguments: list[Any] = [token]
        if kind in ("pay_slowly", "take", "take_on"):
            arguments.append(chooser.choice((0.02, 0.1, 0.3, 0.3, 3.0)))
        if kind.startswith("alone"):
            arguments.append(f"key {chooser.randrange(12)}")
        options: dict[str, Any] = {"queue_name": chooser.choice(QUEUES)}
        if chooser.random() < 0.2:
            options["priority"] = chooser.randint(-2, 2)
        if chooser.random() < 0.25 and not kind.startswith("alone"):
            options["channel"] = chooser.choice(list(CHANNELS))
        if chooser.random() < 0.1:
            options["run_after"] = seconds(chooser.uniform(0.05, 3))
        if kind == "follow":
            options["queue_name"] = self._expect(chooser, token)
        try:
            result = task_of(kind).using(**options).enqueue(*arguments)
        except ChannelFull:
            return
        tasks.remember(token, result.id)

    def _expect(self, chooser: random.Random, token: int) -> str:
        """Emits what a durable job will wait for, now or soon, and returns its queue."""
        self.emitter.expect(token)
        if chooser.random() < 0.2:
            self.emitter.emit_all(token)
        return durable.QUEUE

    def _start_over(self) -> None:
        try:
            connection.close()
        except (DatabaseError, InterfaceError):
            connection.connection = None
        time.sleep(0.1)


def task_of(kind: str) -> Any:
    return durable.follow if kind == "follow" else getattr(tasks, kind)


def connect_as(**changes: Any) -> None:
    """This thread's connection is another one than the settings say."""
    settings = {**connections.settings["default"], **changes}
    connections["default"] = type(connections["default"])(settings, "default")


def seconds(number: float) -> Any:
    import datetime as dt

    return dt.timedelta(seconds=number)
