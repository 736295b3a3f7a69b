"""Those who write the history meanwhile: they commit, roll back, commit late, and write days that are over."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import psycopg

from tests.support.sessions import Session, end_one, token

if TYPE_CHECKING:
    from types import TracebackType

DAY_MS = 86_400_000


class Writers:
    """Threads with a connection each, until the ``with`` block ends.  It can be entered again."""

    def __init__(self, conninfo: str, number: int = 8) -> None:
        self.conninfo = conninfo
        self.chances = [random.Random(seed) for seed in range(number)]
        self.ended: set[int] = set()
        """The messages whose ends are committed."""
        self.steps: set[int] = set()
        """Those of them that have done a step."""

    def __enter__(self) -> None:
        self.enough = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(chance,)) for chance in self.chances]
        for thread in self.threads:
            thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.enough.set()
        for thread in self.threads:
            thread.join()

    def _write(self, chance: random.Random) -> None:
        with psycopg.connect(self.conninfo) as connection:
            session = Session(connection)
            while not self.enough.is_set():
                steps: set[int] = set()
                ended = {self._end(session, chance, steps) for _ in range(chance.randint(1, 5))}
                # One in three is late: others, with larger ids, commit before it.
                self.enough.wait(chance.choice((0.0, 0.01, chance.uniform(0.1, 1.0))))
                if chance.random() < 0.25:
                    connection.rollback()
                else:
                    connection.commit()
                    self.ended.update(ended)
                    self.steps.update(steps)

    def _end(self, session: Session, chance: random.Random, steps: set[int]) -> int:
        at_ms = int(time.time() * 1000) - chance.choice((0, 0, 0, 4, 5)) * DAY_MS
        if chance.random() < 0.7:
            return end_one(session, at_ms)
        session.set_clock(at_ms)
        message_id = session.create(task="a durable one", dequeue_at=0)
        held = token(session.take(tasks=True))
        session.value("pgqueue_step_record", **held, name="charge", result={"n": message_id})
        session.value("pgqueue_message_complete", **held)
        steps.add(message_id)
        return message_id
