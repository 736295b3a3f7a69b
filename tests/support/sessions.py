"""Database sessions that speak to the queue in SQL, as a program in any language would."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import psycopg

T = TypeVar("T")
IDLE_SESSIONS = "pgqueue tests, kept for the next one"
"""Their application_name, for tests that look for sessions which somebody has left behind."""
SECONDS = 30.0
NOON = 1_700_000_000_000
"""A time for clocks that are set by hand, in epoch ms: 2023-11-14 22:13:20 UTC."""
JSON_PARAMETERS = {"headers", "state", "result", "messages"}


class Session:
    """A connection, with words for what most tests do.

    >>> session.create({"n": 1}, queue="mail")  # doctest: +SKIP
    >>> held = session.take(queues=["mail"])  # doctest: +SKIP
    >>> session.value("pgqueue_message_complete", **token(held))  # doctest: +SKIP
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        connection.row_factory = namedtuple_row
        self.connection = connection
        self.listens = False
        self.pid = connection.info.backend_pid

    def rows(self, sql: str, parameters: Any = None) -> list[Any]:
        cursor = self.connection.execute(sql.encode(), parameters)
        return [] if cursor.description is None else cursor.fetchall()  # one row of no columns is a row

    def column(self, sql: str, parameters: Any = None) -> list[Any]:
        return [row[0] for row in self.rows(sql, parameters)]

    def one(self, sql: str, parameters: Any = None) -> Any:
        """The only value that a statement answers."""
        [[value]] = self.rows(sql, parameters)
        return value

    def call(self, function: str, /, **parameters: Any) -> list[Any]:
        """The rows that a function answers; its parameters are named without their ``p_``."""
        named = ", ".join(f"p_{name} => %({name})s" for name in parameters)
        return self.rows(f"select * from {function}({named})", {k: _adapted(k, v) for k, v in parameters.items()})

    def value(self, function: str, /, **parameters: Any) -> Any:
        """The only value that a function answers."""
        [[value]] = self.call(function, **parameters)
        return value

    def ids(self, function: str, /, **parameters: Any) -> list[Any]:
        """The ids that a function answers."""
        return [row[0] for row in self.call(function, **parameters)]

    def create(self, content: Any = "tea", **parameters: Any) -> int:
        created: int = self.value("pgqueue_message_create", content=content, **parameters)
        return created

    def create_batch(self, number: int, **common: Any) -> list[int]:
        """``number`` messages with the contents 0, 1, 2, …"""
        messages = [{"content": n, **common} for n in range(number)]
        return self.ids("pgqueue_message_create_many", messages=messages)

    def dequeue(self, limit: int = 1, **parameters: Any) -> list[Any]:
        return self.call("pgqueue_message_dequeue", limit=limit, **parameters)

    def take(self, **parameters: Any) -> Any:
        """The next message, which must be there."""
        taken = self.dequeue(1, **parameters)
        assert taken, "there is no message to take"
        return taken[0]

    def message(self, message_id: int) -> Any:
        """The message as it stands in the queue, or None."""
        return next(iter(self.rows("select * from pgqueue_message where id = %s", [message_id])), None)

    def messages(self) -> list[Any]:
        return self.rows("select * from pgqueue_message order by id")

    def history(self, message_id: int | None = None) -> list[Any]:
        """The finished attempts, of one message or of all."""
        return self.rows(
            "select * from pgqueue_attempt where coalesce(message_id = %s, true) order by id", [message_id]
        )

    def set_clock(self, epoch_ms: int | None) -> None:
        """Stops the queue's clock of this session at a time; None: lets it run again."""
        self.rows("select set_config('pgqueue.now', %s, false)", ["" if epoch_ms is None else str(epoch_ms)])

    def waits_for_a_lock(self, other: Session) -> bool:
        """Whether ``other`` waits for a lock just now."""
        return bool(self.one("select cardinality(pg_blocking_pids(%s)) > 0", [other.pid]))

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


class Listener:
    """Hears what is notified on notification channels."""

    def __init__(self, session: Session, *channels: str) -> None:
        self.session = session
        session.listens = True
        self.notifications: list[tuple[str, str]] = []
        session.connection.add_notify_handler(lambda said: self.notifications.append((said.channel, said.payload)))
        for channel in (*channels, "last_word"):
            session.rows(f'listen "{channel}"')

    def heard(self, speaker: Session) -> list[tuple[str, str]]:
        """Return what has been notified since the last question.

        Notifications come in the order of their commits: when the last word of ``speaker``, whose transactions have
        ended, has come, nothing that was said before is still on its way.
        """
        last_word = ("last_word", uuid4().hex)
        speaker.rows("select pg_notify(%s, %s)", last_word)
        eventually(lambda: self.session.rows("select 1") and last_word in self.notifications)
        heard = [said for said in self.notifications if said[0] != "last_word"]
        self.notifications.clear()
        return heard


def token(held: Any) -> dict[str, Any]:
    """The parameters id, attempt and worker of the functions that end the attempt."""
    return {"id": held.id, "attempt": held.attempt, "worker": held.worker}


def tokens(held: Iterable[Any]) -> dict[str, Any]:
    """The same for functions that end many attempts of one worker."""
    held = list(held)
    return {"ids": [m.id for m in held], "attempts": [m.attempt for m in held], "worker": held[0].worker}


def end_one(session: Session, at_ms: int | None = None) -> int:
    """A message that was completed at a time of the queue's clock."""
    session.set_clock(at_ms)
    message_id = session.create(dequeue_at=0)
    session.value("pgqueue_message_complete", **token(session.take()))
    return message_id


def partition_of(session: Session, message_id: int) -> str:
    name: str = session.one("select tableoid::regclass::text from pgqueue_attempt where message_id = %s", [message_id])
    return name


def eventually(condition: Callable[[], T], seconds: float = SECONDS) -> T:
    """The first true answer of the condition, which must come before the deadline."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.002)
    return answer


def concurrently(actions: Iterable[Callable[[], T]], seconds: float = SECONDS) -> list[T]:
    """Run the actions at the same time, each in a thread of its own, and return their answers."""
    actions = list(actions)
    start = Barrier(len(actions))

    def begin(action: Callable[[], T]) -> T:
        start.wait(seconds)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result(seconds) for future in [pool.submit(begin, action) for action in actions]]


def _adapted(name: str, value: Any) -> Any:
    if name == "content" or (name in JSON_PARAMETERS and value is not None):
        return Jsonb(value)
    if name == "error" and isinstance(value, dict):
        return json.dumps(value)
    if name == "results" and value is not None:
        return [None if result is None else Jsonb(result) for result in value]
    return value
